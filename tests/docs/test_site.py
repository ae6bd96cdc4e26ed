"""The site that `make docs` builds: what can be said of it without building it."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import yaml

from outdraft.cli.main import COMMANDS, find_command
from tests.docs.written import DOCS, PAGES, ROOT, in_blocks, name_of
from tests.report.test_one_answer import QUOTED, text_of

TUTORIALS = sorted(each for each in map(name_of, PAGES) if each.startswith("tutorials/"))
WITH_LINKS = (*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "dev" / "LOG.md")
MENU = (ROOT / "mkdocs.yml").read_text()


@pytest.fixture(scope="module")
def reference() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "dev")
        yield importlib.import_module("docs_reference")


def in_menu(entry: object) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, list | dict):
        for each in entry.values() if isinstance(entry, dict) else entry:
            yield from in_menu(each)


def test_the_menu_has_every_page_and_command() -> None:
    found = list(in_menu(yaml.safe_load(MENU)["nav"]))
    assert len(found) == len(set(found))
    made = {"reference/index.md", *(f"reference/{name}.md" for name in COMMANDS)}
    outside = {"tree/CONTRIBUTING.md", "tree/CHANGELOG.md", "tree/dev/LOG.md"}
    assert set(found) == {str(page.relative_to(DOCS)) for page in PAGES[1:]} | made | outside


def anchors(text: str) -> set[str]:
    """Those of a page's headings."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", WITH_LINKS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: object) -> None:
    assert isinstance(page, type(ROOT))
    for link, anchor in re.findall(r"\]\(([^)\s#:]*)#?([^)\s:]*)\)", page.read_text()):
        target = (page.parent / link).resolve() if link else page
        made = {DOCS / "reference" / name for name in ("index.md",)}
        assert target.exists() or target in made, link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{link}#{anchor}"


def test_what_people_stumbled_over_is_on_no_page() -> None:
    """Reports of the gallery are pages of earlier versions."""
    pages = [*PAGES, *(DOCS / "reports").glob("*.html")]
    texts = {name_of(page): text_of(page.read_text()) for page in pages}
    assert [(name, words) for name in texts for words in QUOTED if words in texts[name]] == []


def test_every_report_is_in_the_gallery() -> None:
    text = (DOCS / "reports" / "index.md").read_text()
    reports = [each.name for each in (DOCS / "reports").glob("*.html")]
    assert reports
    assert [name for name in reports if f"({name})" not in text] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_reference_has_every_option(name: str, reference: ModuleType) -> None:
    page = reference.command_page(name)
    rows = [line for line in page.splitlines() if line.startswith("| <code>")]
    shown = [option for option in find_command(name).options if not option.is_hidden]
    assert len(rows) == len(shown)
    for option, row in zip(shown, rows, strict=True):
        cells = re.split(r"(?<!\\)\|", row)
        assert len(cells) == 5, "a cell holds no sign that ends it"
        if option.flag.startswith("-"):
            assert re.findall(r"<code>([^\s<]*)", cells[1]) == [option.flag]
        assert "\\" not in cells[1] + cells[3], "it would be shown"
        assert (option.default is None) is (not cells[3].strip())
    assert f"]({name}.md)" in reference.index_page()


def test_the_tutorials_are_typed_by_test_commands() -> None:
    assert len(TUTORIALS) == 4
    typed = {each.page for each in in_blocks()}
    assert set(TUTORIALS) <= typed


def test_a_flag_is_one_word_of_a_line() -> None:
    code = "import docs_hooks; print(docs_hooks.on_page_content('<code>serve --max-k 2</code>'))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    said = subprocess.run(command, cwd=ROOT / "dev", check=True, capture_output=True, text=True)
    assert said.stdout == '<code>serve <span class="flag">--max-k</span> 2</code>\n'

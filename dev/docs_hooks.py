"""What `make docs` adds to the files of docs/ (hooks of mkdocs).

Pages are written to be read in the repository too. So links may lead out of docs/, and lists
follow their sentence at once; here both become what the generator understands.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from docs_reference import command_page, index_page
from mkdocs.structure.files import File, Files

from outdraft.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
ALWAYS = ("CONTRIBUTING.md", "CHANGELOG.md", "dev/LOG.md")  # named in the site's menu
_LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")
_INLINE = re.compile(r"<code>[^<]*</code>")
_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_ITEM = re.compile(r"(?:[-*]|\d+\.) ")


def site_path(path: str) -> str:
    """Where a file of the repository is in the site."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"tree/{path}" if path.endswith(".md") else f"tree/{path}.md"


def repository_path(path: str) -> str:
    """The reverse for pages: `docs/` is the root of the site."""
    return path.removeprefix("tree/") if path.startswith("tree/") else f"docs/{path}"


def linked_from(path: str, text: str) -> set[str]:
    """The files of the repository that a page links to."""
    folder = posixpath.dirname(path)
    return {posixpath.normpath(posixpath.join(folder, each[1])) for each in _LINK.findall(text)}


def relinked(path: str, text: str) -> str:
    """A page of the repository with links that hold in the site."""
    here = posixpath.dirname(site_path(path))

    def relink(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), match[2]))
        link = posixpath.relpath(site_path(target), here or ".")
        return f"{match[1]}{link}{match[3] or ''}{match[4]}"

    return _LINK.sub(relink, text)


def separated(text: str) -> str:
    """With an empty line before a list or table, and nested items four spaces in."""
    lines: list[str] = []
    is_code = False
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            is_code = not is_code
        before = lines[-1] if lines else ""
        is_item = not is_code and _ITEM.match(line) is not None
        is_table = not is_code and line.startswith("|")
        if is_item and _is_sentence(before) and not _in_list(lines):
            lines.append("")
        if is_table and before and not before.startswith("|"):
            lines.append("")
        if not is_code and re.match(r" {2,3}(?:[-*]|\d+\.) ", line):
            line = f"    {line.lstrip()}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def _is_sentence(line: str) -> bool:
    return bool(line) and not line.startswith(("#", "|", "```", "<!--"))


def _in_list(lines: list[str]) -> bool:
    """Whether the paragraph that these lines end with is that of an item."""
    for line in reversed(lines):
        if not line:
            return False
        if _ITEM.match(line.lstrip()):
            return True
        if not line.startswith(" "):
            return False
    return False


def on_files(files: Files, config: Any) -> Files:
    pages = [file for file in files if file.src_uri.endswith(".md")]
    linked = {
        each for page in pages for each in linked_from(f"docs/{page.src_uri}", page.content_string)
    }
    outside = {each for each in linked if not each.startswith("docs/") and (ROOT / each).is_file()}
    for path in sorted({*outside, *ALWAYS}):
        files.append(File.generated(config, site_path(path), content=_shown(path)))
    files.append(File.generated(config, "reference/index.md", content=index_page()))
    for name in COMMANDS:
        page = File.generated(config, f"reference/{name}.md", content=command_page(name))
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    path = page.file.src_uri
    if path.startswith("reference/"):
        return markdown
    return separated(relinked(repository_path(path), markdown))


def on_page_content(html: str, **_: Any) -> str:
    """Flags as words of their own: a browser would end a line after a hyphen."""
    return _INLINE.sub(
        lambda code: _FLAG.sub(lambda flag: f'<span class="flag">{flag[0]}</span>', code[0]), html
    )


def _shown(path: str) -> str:
    text = (ROOT / path).read_text(encoding="utf-8")
    return text if path.endswith(".md") else f"# {path}\n\n````python\n{text}````\n"

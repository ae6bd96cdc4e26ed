"""The page as text: whole, escaped, self-contained, every number with its n."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from outdraft.report.page import page
from outdraft.report.theme import PALETTE, theme_css
from tests.report.odd_results import LONG, ODD, SCRIPT, hostile_names
from tests.report.sample_results import sample_results

ALL = {"sample": sample_results, **ODD}
VOID = {"meta", "link", "input"}
SECTIONS = ["loads", "speedups", "times", "acceptance", "categories", "texts", "memory", "checks",
            "prediction", "arms", "pruned", "run"]  # fmt: skip


@dataclass
class Seen(HTMLParser):
    """What stands in a page, and whether every tag is closed."""

    open: list[str] = field(default_factory=list)
    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def seen(text: str) -> Seen:
    parser = Seen()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: page(make(), ["vllm.sh"]) for name, make in ALL.items()}


@pytest.mark.parametrize("name", ALL)
def test_whole_and_with_all_sections(pages: dict[str, str], name: str) -> None:
    found = seen(pages[name])
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if each in SECTIONS] == SECTIONS
    for kind, attrs in found.tags:
        href = attrs.get("href") or ""
        if kind == "a" and href.startswith("#"):
            assert href[1:] in ids
        if "aria-labelledby" in attrs:
            assert attrs["aria-labelledby"] in ids


@pytest.mark.parametrize("name", ALL)
def test_nothing_from_elsewhere(pages: dict[str, str], name: str) -> None:
    text = pages[name]
    assert not re.search(r"https?:|//\w|@import|url\(", text.replace("</", ""))
    for kind, attrs in seen(text).tags:
        assert kind not in ("script", "iframe", "img", "object", "embed", "base")
        assert not any(key.startswith("on") for key in attrs)
        assert "src" not in attrs
    assert "default-src &#x27;none&#x27;" in text


def test_whatever_is_in_the_results_is_text(pages: dict[str, str]) -> None:
    text = pages["hostile_names"]
    assert "<script" not in text
    assert text.count("&lt;script&gt;") > 50
    assert "\x00" not in text
    text.encode()
    shown = "".join(seen(text).texts)
    assert SCRIPT in shown
    assert hostile_names().notes[0] in shown


def test_every_number_has_its_n(pages: dict[str, str]) -> None:
    """Of the heat map, the tiles, the times and the acceptance: no figure stands alone."""
    text = pages["sample"]
    results = sample_results()
    cells = re.findall(r'<td class="(?:gain|loss)[^"]*" style=[^>]*>(.*?)</td>', text)
    measured = [each for each in cells if "predicted" not in each]
    arms = [arm for load in results.loads for arm in load.arms if not arm.speculation.is_off]
    assert len(cells) == sum(arm.speedup is not None for arm in arms) - 1  # one failed
    assert len(measured) == sum(
        arm.measured is not None for load in results.loads for arm in load.arms
    )
    assert all(re.search(r"n=\d", each) for each in measured)
    tiles = re.search(r'<dl class="tiles">(.*?)</dl>', text)
    assert tiles is not None
    assert len(re.findall(r"n=\d", tiles[1])) == 4
    for found in results.acceptance:
        assert f"at k={found.k}, n={found.num_requests}" in text
    assert text.count('best<span class="ci">n=240') == 9  # three kinds of times, three loads


def test_states_differ_without_colours(pages: dict[str, str]) -> None:
    text = pages["sample"]
    assert "★ 1.97×" in text
    assert "≈ 1.69×" in text
    assert "✕ failed" in text
    assert "out of memory" in text
    assert "n=72 †" in text


def test_every_picture_has_words_and_its_numbers(pages: dict[str, str]) -> None:
    pictures = [attrs for kind, attrs in seen(pages["sample"]).tags if kind == "svg"]
    for attrs in pictures:
        assert attrs.get("aria-label") or attrs.get("aria-hidden") == "true"
    assert sum("aria-label" in attrs for attrs in pictures) == 3 + 9 + 7 + 5 + 1 + 1
    assert pages["sample"].count("<details") >= 20


@pytest.mark.parametrize(
    "name", [name for name in ALL if name not in ("hostile_names", "long_names")]
)
def test_what_scrolls_has_a_name_of_its_own(pages: dict[str, str], name: str) -> None:
    """Screen readers list these regions."""
    regions = [attrs for _, attrs in seen(pages[name]).tags if attrs.get("role") == "region"]
    labels = [attrs["aria-label"] for attrs in regions]
    assert len(labels) == len(set(labels))
    heads = re.findall(r"<th[^>]*></th>", pages[name])
    assert heads == [], "a column without a name"


def test_headings_go_down_one_at_a_time(pages: dict[str, str]) -> None:
    for text in pages.values():
        levels = [int(each) for each in re.findall(r"<h([1-6])", text)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))


def test_long_names_are_whole(pages: dict[str, str]) -> None:
    assert "".join(seen(pages["long_names"]).texts).count(LONG) > 5


def test_it_is_not_large(pages: dict[str, str]) -> None:
    assert len(pages["sample"]) < 400_000


LIGHT, DARK = 0, 1


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG 2: 1 to 21."""
    a, b = sorted((luminance(one), luminance(other)), reverse=True)
    return (a + 0.05) / (b + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    """As `color-mix(in srgb, one share, other)`."""
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@pytest.mark.parametrize("side", [LIGHT, DARK])
def test_text_can_be_read(side: int) -> None:
    for ground in ("ground", "surface", "raised"):
        for ink in ("ink", "quiet", "link"):
            assert contrast(PALETTE[ink][side], PALETTE[ground][side]) >= 4.5, (ink, ground)
    for tone in ("ship", "part", "stop", "open"):
        ground = PALETTE[f"{tone}_ground"][side]
        for ink in (tone, "ink", "quiet"):
            assert contrast(PALETTE[ink][side], ground) >= 4.5, (tone, ink)


@pytest.mark.parametrize("side", [LIGHT, DARK])
def test_ink_can_be_read_on_the_hottest_cell(side: int) -> None:
    for heat in ("gain", "loss"):
        ground = mixed(PALETTE[heat][side], PALETTE["surface"][side], 0.62)
        assert contrast(PALETTE["ink"][side], ground) >= 4.5, heat


@pytest.mark.parametrize("side", [LIGHT, DARK])
def test_marks_stand_out(side: int) -> None:
    for name in ("s1", "s2", "s3", "s4", "s5", "s6", "axis"):
        assert contrast(PALETTE[name][side], PALETTE["surface"][side]) >= 3, name


def test_the_switch_knows_both_sides() -> None:
    css = theme_css()
    light, dark = (f"--ink:{PALETTE['ink'][side]}" for side in (LIGHT, DARK))
    assert css.count(light) == 3  # the usual, the switch, paper
    assert css.count(dark) == 2
    assert "#theme-dark:checked" in css
    assert "#theme-light:checked" in css

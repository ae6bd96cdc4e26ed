"""The page in a real Chromium: nothing complains, nothing is fetched, everything is drawn.

Runs where one is found: $OUTDRAFT_CHROMIUM, or chromium, chromium-browser, google-chrome on the
path (Debian: `apt install chromium`). With axe (`npm pack axe-core`, its axe.min.js named by
$OUTDRAFT_AXE), accessibility rules are checked, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from outdraft.report.write import write_report
from tests.report.bench_pages import OTHER_PAGES
from tests.report.chromium import Tab, find_chromium, tab_of
from tests.report.odd_results import ODD
from tests.report.sample_results import sample_results

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="no Chromium: set $OUTDRAFT_CHROMIUM or install one (Debian: apt install chromium)",
)

SHAPES = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))

# What is wrong with how a page is laid out, as texts; an empty list is what we want.
FAULTS = """(() => {
  const faults = [], root = document.documentElement, wide = root.clientWidth;
  if (root.scrollWidth > wide) faults.push(`the page is ${root.scrollWidth} wide`);
  for (const each of document.querySelectorAll('details')) each.open = true;
  const boxes = 'section, figure, svg[role=img], table, dl, nav, header';
  for (const each of document.querySelectorAll(boxes)) {
    const box = each.getBoundingClientRect();
    if (box.width < 20 || box.height < 8) faults.push(`${each.outerHTML.slice(0, 90)} is empty`);
    if (!each.closest('.scroll') && box.right > wide + 1)
      faults.push(`${each.outerHTML.slice(0, 90)} ends at ${box.right}`);
  }
  for (const each of document.querySelectorAll('th'))
    if (!each.textContent.trim()) faults.push(`a head of a table is empty: ${each.outerHTML}`);
  const range = document.createRange();
  for (const each of document.querySelectorAll('.decision, td.label b'))
    for (const text of each.childNodes)
      for (const word of text.nodeType === 3 ? text.data.matchAll(/[^ ]+/g) : []) {
        range.setStart(text, word.index);
        range.setEnd(text, word.index + word[0].length);
        if (range.getClientRects().length > 1) faults.push(`${word[0]} is broken`);
      }
  if (root.scrollWidth > wide) faults.push(`with all open it is ${root.scrollWidth} wide`);
  for (const each of document.querySelectorAll('svg.plot')) {
    const marks = each.querySelectorAll('.dot, .column, .range');
    if (!marks.length) faults.push(`${each.getAttribute('aria-label')}: nothing in it`);
    for (const mark of marks) {
      const style = getComputedStyle(mark);
      if (style.fill === 'none' && style.stroke === 'none') faults.push('a mark without colour');
    }
    for (const text of each.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.width && box.height < 8) faults.push(`"${text.textContent}" is ${box.height} high`);
    }
  }
  return faults;
})()"""


def looked_at(width: int, scheme: str) -> set[str]:
    """The layout does not depend on the colours, and what is narrow is what goes wrong."""
    if scheme == "dark":
        return {"sample"}
    narrow = {"sample", *ODD, *OTHER_PAGES}
    return narrow if width < 600 else {"sample", "long_names", "forty_arms", "bench", "compare"}


# One page of each verdict, beside the sample.
VERDICTS = ("wins_everywhere", "wins_in_parts", "loses", "all_inconclusive", "another_proposer",
            "out_of_time", "nothing_measured")  # fmt: skip
AXE = os.environ.get("OUTDRAFT_AXE")
VIOLATIONS = """axe.run(document, {resultTypes: ['violations']}).then((found) =>
  found.violations.map((each) => `${each.id}: ${each.nodes[0].html.slice(0, 160)}`))"""
OPEN_ALL = "for (const each of document.querySelectorAll('details')) each.open = true"
FOLDED = "each => each.textContent.includes('more proposers')"
GROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def in_browser() -> Iterator[Callable[[Callable[[Tab], Awaitable[None]]], None]]:
    """Runs work in one browser for all tests: its start is the slow part."""
    with asyncio.Runner() as runner:
        opened = tab_of(str(find_chromium()))
        tab = runner.run(opened.__aenter__())
        yield lambda work: runner.run(work(tab))
        runner.run(opened.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, make in {"sample": sample_results, **ODD}.items():
        write_report(make(), folder / f"{name}.html")
        made[name] = (folder / f"{name}.html").as_uri()
    for name, make_page in OTHER_PAGES.items():
        (folder / f"{name}.html").write_text(make_page())
        made[name] = (folder / f"{name}.html").as_uri()
    return made


def test_every_page_at_every_size(in_browser: Any, pages: dict[str, str]) -> None:
    async def work(tab: Tab) -> None:
        pictures = []
        for width, scheme in SHAPES:
            await tab.shape(width, 900, scheme)
            for name, url in pages.items():
                if name not in looked_at(width, scheme):
                    continue
                tab.requests.clear()
                await tab.open(url)
                if name == "sample":
                    pictures.append(await tab.screenshot())
                assert await tab.evaluate(FAULTS) == [], (name, width)
                assert tab.requests == [url], name
                assert tab.complaints == [], name
                assert await tab.evaluate("document.title") != "owned", name
        assert len(set(pictures)) == len(SHAPES)
        assert min(map(len, pictures)) > 20_000  # bytes: not a blank page

    in_browser(work)


@pytest.mark.skipif(AXE is None, reason="no axe: set $OUTDRAFT_AXE (npm pack axe-core)")
@pytest.mark.parametrize("name", ["sample", *VERDICTS, *OTHER_PAGES])
def test_axe_finds_no_fault(in_browser: Any, pages: dict[str, str], name: str) -> None:
    """With everything folded out, too."""

    async def work(tab: Tab) -> None:
        for width, scheme in SHAPES:
            await tab.shape(width, 900, scheme)
            await tab.open(pages[name])
            await tab.evaluate(f"{Path(str(AXE)).read_text()}; 0")
            for _ in range(2):
                answer = await tab.call("Runtime.evaluate", expression=VIOLATIONS,
                                        awaitPromise=True, returnByValue=True)  # fmt: skip
                assert answer["result"]["value"] == [], (width, scheme)
                await tab.evaluate(OPEN_ALL)

    in_browser(work)


def test_what_is_folded_is_reached_by_keyboard_without_a_script(
    in_browser: Any, pages: dict[str, str]
) -> None:
    """Enter on a summary folds it out; there is no script in the page that could."""

    async def work(tab: Tab) -> None:
        await tab.shape(1280, 900, "light")
        await tab.open(pages["sample"])
        count = "document.querySelectorAll('details[open]').length"
        before = await tab.evaluate(count)
        found = f"[...document.querySelectorAll('summary')].findIndex({FOLDED})"
        at = await tab.evaluate(found)
        assert at >= 0
        await tab.evaluate(f"document.querySelectorAll('summary')[{at}].focus()")
        for kind in ("keyDown", "keyUp"):
            await tab.call("Input.dispatchKeyEvent", type=kind, key="Enter", code="Enter",
                           windowsVirtualKeyCode=13, text="\r")  # fmt: skip
        assert await tab.evaluate(count) == before + 1
        assert await tab.evaluate("document.scripts.length") == 0

    in_browser(work)


def test_the_switch_between_light_and_dark(in_browser: Any, pages: dict[str, str]) -> None:
    """Works by itself: there is no script in the page."""

    async def work(tab: Tab) -> None:
        await tab.shape(1280, 900, "light")
        await tab.open(pages["sample"])
        light = await tab.evaluate(GROUND)
        await tab.evaluate("document.getElementById('theme-dark').click()")
        dark = await tab.evaluate(GROUND)
        await tab.evaluate("document.getElementById('theme-auto').click()")
        assert await tab.evaluate(GROUND) == light != dark
        await tab.shape(1280, 900, "dark")
        assert await tab.evaluate(GROUND) == dark
        await tab.evaluate("document.getElementById('theme-light').click()")
        assert await tab.evaluate(GROUND) == light
        assert await tab.evaluate("document.scripts.length") == 0

    in_browser(work)


def test_the_keyboard_reaches_what_can_be_used(in_browser: Any, pages: dict[str, str]) -> None:
    async def work(tab: Tab) -> None:
        await tab.shape(1280, 900, "light")
        await tab.open(pages["sample"])
        reached = []
        for _ in range(6):
            for kind in ("keyDown", "keyUp"):
                await tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                               windowsVirtualKeyCode=9)  # fmt: skip
            reached.append(
                await tab.evaluate(
                    "[document.activeElement.tagName, document.activeElement.className || "
                    "document.activeElement.id]"
                )
            )
        assert reached[0] == ["A", "skip"]
        assert ["INPUT", "theme-auto"] in reached
        assert ["DIV", "line scroll"] in reached
        assert any(tag == "SUMMARY" for tag, _ in reached)

    in_browser(work)

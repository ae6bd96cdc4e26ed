"""The live page in a real Chromium: nothing complains, everything is drawn, what changes comes in
without a reload. Runs where a browser is found, as `tests/report/test_browser.py` does; with axe
(`npm pack axe-core`, its axe.min.js named by $OUTDRAFT_AXE), accessibility rules are checked, too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.watch.findings import FLEET
from outdraft.watch.site import Site
from outdraft.watch.snapshot import Snapshot
from tests.report.chromium import Tab, find_chromium, tab_of
from tests.report.test_browser import FAULTS, GROUND, SHAPES
from tests.watch.sample_snapshot import AT, KEEP, empty_snapshot, sample_snapshot, sample_trail

pytestmark = pytest.mark.skipif(
    find_chromium() is None,
    reason="no Chromium: set $OUTDRAFT_CHROMIUM or install one (Debian: apt install chromium)",
)
AXE = os.environ.get("OUTDRAFT_AXE")
FAILED = """axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map(
  (each) => `${each.id}: ${each.nodes.map((node) => node.html).slice(0, 3).join(' | ')}`))"""
# The card lies on the same ground as other sections, whatever its tone.
GROUNDS = """['#advice', '#alarms'].map((each) =>
  getComputedStyle(document.querySelector(each)).backgroundColor)"""

Work = Callable[[Tab, Site, str], Awaitable[None]]


def in_browser(snapshot: Snapshot, work: Work) -> None:
    """The page of a site that looks again every second, in a browser."""

    async def run() -> None:
        site = Site(has_page=True, refresh_s=1)
        site._trail = sample_trail()
        site.show(snapshot)
        async with site.serve(("127.0.0.1", 0)) as url, tab_of(str(find_chromium())) as tab:
            await work(tab, site, url)

    asyncio.run(run())


async def until(tab: Tab, expression: str) -> None:
    for _ in range(100):
        if await tab.evaluate(expression):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"never: {expression}")


def calm() -> Snapshot:
    now = sample_snapshot()
    fleet = replace(now.fleet, advice=replace(KEEP, replica=FLEET), parts=())
    return replace(now, at=AT + 60, fleet=fleet, replicas=now.replicas[:1])


@pytest.mark.parametrize("make", [sample_snapshot, calm, empty_snapshot])
def test_every_size(make: Callable[[], Snapshot]) -> None:
    async def work(tab: Tab, site: Site, url: str) -> None:
        pictures = []
        for width, scheme in SHAPES:
            await tab.shape(width, 900, scheme)
            tab.requests.clear()
            await tab.open(f"{url}/")
            pictures.append(await tab.screenshot(whole=True))
            if folder := os.environ.get("OUTDRAFT_PICTURES"):
                name = f"{make.__name__}-{width}-{scheme}.png"
                (Path(folder) / name).write_bytes(pictures[-1])
            assert await tab.evaluate(FAULTS) == [], width
            assert len(set(await tab.evaluate(GROUNDS))) == 1
            assert {*tab.requests} - {"data:,"} == {f"{url}/", f"{url}/watch.js"}
            assert tab.complaints == []
            assert "owned" not in await tab.evaluate("document.title")
        assert len(set(pictures)) == len(SHAPES)

    in_browser(make(), work)


def test_what_changes_comes_in_and_what_was_chosen_stays() -> None:
    async def work(tab: Tab, site: Site, url: str) -> None:
        await tab.shape(1280, 900, "light")
        await tab.open(f"{url}/")
        await tab.evaluate("document.getElementById('theme-dark').click()")
        dark = await tab.evaluate(GROUND)
        await tab.evaluate("document.querySelector('#time summary').click()")
        await tab.evaluate("document.querySelector('#time summary').focus()")
        await tab.evaluate("window.isFirst = true")
        site.show(calm())
        await until(tab, "document.title.startsWith('KEEP')")
        assert await tab.evaluate("document.querySelector('h1').textContent") == (
            "Speculation pays: keep it"
        )
        assert "No alarm stands" in await tab.evaluate(
            "document.getElementById('alarms').innerText"
        )
        assert await tab.evaluate("window.isFirst"), "it was loaded anew"
        assert await tab.evaluate("document.querySelector('#time details').open")
        assert await tab.evaluate("document.activeElement.tagName") == "SUMMARY"
        assert await tab.evaluate(GROUND) == dark
        assert tab.complaints == []

    in_browser(sample_snapshot(), work)


def test_a_watch_that_is_gone_is_said() -> None:
    async def run() -> None:
        site = Site(has_page=True, refresh_s=1)
        site.show(sample_snapshot())
        async with tab_of(str(find_chromium())) as tab:
            async with site.serve(("127.0.0.1", 0)) as url:
                await tab.open(f"{url}/")
                assert await tab.evaluate("document.getElementById('lost').textContent") == ""
            said = "document.getElementById('lost').textContent.startsWith('The watch does not')"
            await until(tab, said)
            assert "TURN OFF" in await tab.evaluate("document.body.innerText")

    asyncio.run(run())


def test_the_keyboard_reaches_what_can_be_used() -> None:
    async def work(tab: Tab, site: Site, url: str) -> None:
        await tab.open(f"{url}/")
        reached: list[Any] = []
        for _ in range(12):
            for kind in ("keyDown", "keyUp"):
                await tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab",
                               windowsVirtualKeyCode=9)  # fmt: skip
            reached.append(await tab.evaluate(
                "document.activeElement.id || document.activeElement.className || "
                "document.activeElement.tagName"))  # fmt: skip
        assert reached[0] == "skip"
        assert {"theme-auto", "scroll", "SUMMARY"} <= set(reached)

    in_browser(sample_snapshot(), work)


@pytest.mark.skipif(AXE is None, reason="no axe: set $OUTDRAFT_AXE (npm pack axe-core)")
@pytest.mark.parametrize("make", [sample_snapshot, calm, empty_snapshot])
def test_axe_finds_no_fault(make: Callable[[], Snapshot]) -> None:
    async def work(tab: Tab, site: Site, url: str) -> None:
        for width, scheme in SHAPES:
            await tab.shape(width, 900, scheme)
            await tab.open(f"{url}/")
            await tab.evaluate(f"{Path(str(AXE)).read_text()}; 0")
            answer = await tab.call("Runtime.evaluate", expression=FAILED, awaitPromise=True,
                                    returnByValue=True)  # fmt: skip
            assert answer["result"]["value"] == [], (width, scheme)

    in_browser(make(), work)

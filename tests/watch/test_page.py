"""The page as text: whole, escaped, the same words as elsewhere."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from outdraft.watch.findings import FLEET, Action
from outdraft.watch.page import watch_page
from outdraft.watch.snapshot import ReplicaState, ReplicaView, Snapshot
from outdraft.watch.trail import Trail
from tests.report.test_page import seen
from tests.watch.sample_snapshot import (
    ALARM,
    KEEP,
    ODD_NAME,
    OFF,
    empty_snapshot,
    sample_snapshot,
    sample_trail,
)

SECTIONS = ["advice", "alarms", "time", "replicas", "figures", "notices"]
PAGES = {
    "sample": (sample_snapshot(), sample_trail()),
    "empty": (empty_snapshot(), Trail()),
    "many": (
        replace(sample_snapshot(), replicas=tuple(
            ReplicaView(f"http://10.1.0.{each}:8000", ReplicaState.UP) for each in range(50))),
        sample_trail(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAGES)
def test_whole_and_with_all_sections(name: str) -> None:
    found = seen(watch_page(*PAGES[name], 5))
    ids = [attrs["id"] for _, attrs in found.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert [each for each in ids if each in SECTIONS] == SECTIONS
    for kind, attrs in found.tags:
        href = attrs.get("href") or ""
        if kind == "a" and href.startswith("#"):
            assert href[1:] in ids
        if "aria-labelledby" in attrs:
            assert attrs["aria-labelledby"] in ids


def test_names_from_outside_are_text() -> None:
    text = watch_page(*PAGES["sample"], 5)
    assert text.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in text
    assert "<b>bold" not in text
    found = seen(text)
    assert not any(key.startswith("on") for _, attrs in found.tags for key in attrs)
    assert ODD_NAME.removeprefix("http://") in found.texts


def test_it_loads_itself_anew_where_there_is_no_script() -> None:
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in watch_page(
        *PAGES["sample"], 5
    )


def test_what_it_says() -> None:
    words = " ".join(seen(watch_page(*PAGES["sample"], 5)).texts)
    for each in (
        "TURN OFF FOR 9 or more at a time", "1.21×", "[1.12, 1.31]", "by plain replicas",
        "Assumed: the plain replicas have the same hardware and the same traffic.",
        "costs 65,600 tokens an hour", ALARM.command, "drafts are worthless",
        "no answer within 4 s",
        "0.87× [0.82, 0.93] for 9 or more at a time.",
    ):  # fmt: skip
        assert each in words, each


def test_figures_of_all_and_of_each() -> None:
    words = " ".join(seen(watch_page(*PAGES["sample"], 5)).texts)
    for each in (
        "TTFT P50 TTFT P90 TTFT P99 TPOT P50", "all 100 200 410 10.5 16.0 33.0 1,900 3,400 6,200",
        "10.0.0.2:8000 1.50 17.4 0.10 96\N{NO-BREAK SPACE}% 14 33\N{NO-BREAK SPACE}% 4.00",
        "10.0.0.2:8000 0.30 0.10 0.05 0.02",
        "temperature P10 P50 P90 requests 0 0.60 0.80 0.90 500",
    ):  # fmt: skip
        assert each in words, each
    assert "Figures begin with the second look." in watch_page(*PAGES["empty"], 5)


@pytest.mark.parametrize("action", Action)
def test_every_advice_has_a_card(action: Action) -> None:
    advice = replace(OFF, action=action, replica=FLEET, k=3, part="temperature 1+")
    now = sample_snapshot()
    text = watch_page(replace(now, fleet=replace(now.fleet, advice=advice)), Trail(), 5)
    assert f"<title>{advice.words} · outdraft watch</title>" in text
    assert re.search(r'class="card (ship|part|stop)"', text)


def test_keep_without_alarms_is_calm() -> None:
    now = sample_snapshot()
    calm = replace(now, fleet=replace(now.fleet, advice=replace(KEEP, replica=FLEET)),
                   replicas=now.replicas[:1])  # fmt: skip
    words = " ".join(seen(watch_page(calm, sample_trail(), 5)).texts)
    assert "Speculation pays: keep it" in words
    assert "No alarm stands." in words


def test_text_in_backticks_is_code() -> None:
    now = sample_snapshot()
    unknown: Snapshot = replace(
        now, fleet=replace(now.fleet, advice=None, benefit=None), replicas=()
    )
    assert "<code>outdraft tune</code>" in watch_page(unknown, Trail(), 5)


def test_without_advice_it_says_why() -> None:
    now = sample_snapshot()
    unclear = replace(now.fleet, advice=None)
    assert '<h1 id="advice-title">Not clear yet' in watch_page(
        replace(now, fleet=unclear), Trail(), 5
    )
    assert "Nothing to compare with" in watch_page(
        replace(now, fleet=replace(unclear, benefit=None)), Trail(), 5
    )

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR, Verdict
from outdraft.report.sections.loads import (
    crossover,
    load_axis,
    loads_section,
    schedule_rows,
)
from outdraft.tune.results import Results
from tests.report.odd_results import forty_arms, one_load_failed
from tests.report.sample_results import sample_results


def decided(*decisions: str | None) -> Results:
    results = sample_results()
    verdicts = [None if each is None else Verdict(each, (), (), ()) for each in decisions]
    loads = tuple(
        replace(load, verdict=verdict)
        for load, verdict in zip(results.loads, verdicts, strict=False)
    )
    return replace(results, loads=loads)


@pytest.mark.parametrize(
    ("decisions", "said"),
    [
        ((SHIP, SHIP, DONT_SHIP), "wins up to concurrency 4 and off wins from concurrency 16 on"),
        ((SHIP, SHIP_FOR, SHIP), "at every load measured: no crossover"),
        ((SHIP,), "at the load measured"),
        ((DONT_SHIP, DONT_SHIP), "at no load does speculation pay"),
        ((DONT_SHIP, SHIP), "wins at concurrency 4; off wins at concurrency 1."),
        ((SHIP, INCONCLUSIVE), "wins at concurrency 1. Not clear at concurrency 4."),
        ((SHIP, None), "Not clear at concurrency 4."),
        ((), "No load was measured."),
    ],
)
def test_the_crossover_in_words(decisions: tuple[str | None, ...], said: str) -> None:
    assert said in crossover(decided(*decisions))


def test_a_load_that_nothing_was_measured_at() -> None:
    results = decided(SHIP, None)
    first, last = results.loads
    bare = replace(last, arms=tuple(replace(arm, measured=None) for arm in last.arms))
    said = crossover(replace(results, loads=(first, bare)))
    assert "Nothing could be measured at concurrency 4." in said


def test_loads_in_any_order() -> None:
    results = decided(SHIP, SHIP, DONT_SHIP)
    backwards = replace(results, loads=results.loads[::-1])
    assert crossover(backwards) == crossover(results)


def test_what_the_loads_differ_in() -> None:
    assert load_axis(sample_results()) == ("concurrency", ("1", "4", "16"))
    title, names = load_axis(forty_arms())
    assert (title, names[:3]) == ("requests/s", ("0.5", "1", "2"))
    mixed = (*sample_results().loads[:1], *forty_arms().loads[:1])
    title, names = load_axis(replace(sample_results(), loads=mixed))
    assert (title, names) == ("load", ("concurrency 1", "0.5 requests/s"))


def test_the_end_of_a_schedule_is_open() -> None:
    results = replace(sample_results(), schedule=((1, 4, 5), (5, 5, 3), (6, 4096, 0)))
    assert schedule_rows(results) == (("1–4", 5), ("5", 3), ("6+", 0))


def test_rows() -> None:
    section = loads_section(one_load_failed())
    rows = re.findall(r'<tr><th class="short" scope="row">(.*?)</tr>', section)
    of_loads = [row for row in rows if row.startswith("concurrency")]
    assert ["none measured" in row for row in of_loads] == [False, False, True]
    assert "<b>SHIP</b>" in of_loads[0]
    assert "<b>INCONCLUSIVE</b>" in of_loads[2]

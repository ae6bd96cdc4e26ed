from __future__ import annotations

import re
from dataclasses import replace

from outdraft.acceptance import Acceptance
from outdraft.report.sections.loads import load_axis, loads_section, schedule_rows
from outdraft.tune.results import ScheduleResult
from tests.report.odd_results import forty_arms, one_load_failed
from tests.report.sample_results import ratio_about, sample_results


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
    assert "<b>on, k=5</b>" in of_loads[0]
    assert "<b>off</b>" in of_loads[2]


def test_a_speedup_has_its_interval_beside_it() -> None:
    assert "1.97× [1.93, 2.02]<" in loads_section(sample_results())


def test_a_schedule_that_lost_is_said_to_be_unused() -> None:
    results = sample_results()
    assert "the place of a switch is a guess" in loads_section(results)
    lost = ScheduleResult("concurrency 16", ratio_about(0.8, 0.02, 9))
    section = loads_section(replace(results, scheduled=(lost,)))
    assert "Not used: it failed or lost at concurrency 16." in section


def test_how_often_there_is_a_draft_stands_below_the_acceptance() -> None:
    """A rate of 0.5 of a draft in every fourth step is not one of a draft in every step."""
    results = sample_results()
    counts = Acceptance(25, 100, 50, accepted_per_position=[25, 25])
    arms = tuple(
        replace(arm, counts=counts, num_tokens=160, num_texts=10) for arm in results.loads[0].arms
    )
    section = loads_section(replace(results, loads=(replace(results.loads[0], arms=arms),)))
    assert "drafts in 25 % of steps" in section
    assert "drafts in" not in loads_section(results)

from __future__ import annotations

import math
import re
from dataclasses import replace

from outdraft.report.sections.speedups import (
    heat,
    heat_end,
    is_unsure,
    speedup_grids,
    speedups_section,
)
from outdraft.speculation import Speculation
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import BASELINE, PREDICTED, PROFILED
from tests.report.odd_results import nothing_measured
from tests.report.sample_results import ratio_about, sample_results


def test_every_arm_has_its_cell() -> None:
    results = sample_results()
    grids = {grid.proposer: grid for grid in speedup_grids(results)}
    arms = [(load.name, arm) for load in results.loads for arm in load.arms]
    proposed = [(name, arm) for name, arm in arms if arm.state != BASELINE]
    assert sum(len(grid.arms) for grid in grids.values()) == len(proposed)
    for name, arm in proposed:
        speculation = arm.speculation
        assert grids[proposer_name(speculation)].arms[speculation.k, name] is arm


def test_the_grid_follows_the_settings_not_the_names() -> None:
    results = sample_results()
    loads = tuple(
        replace(load, arms=tuple(replace(arm, name="x") for arm in load.arms))
        for load in results.loads
    )
    grids = speedup_grids(replace(results, loads=loads))
    assert [grid.proposer for grid in grids] == [grid.proposer for grid in speedup_grids(results)]


def test_the_fastest_proposer_first_and_the_only_predicted_last() -> None:
    names = [grid.proposer for grid in speedup_grids(sample_results())]
    assert names[0] == "draft_model smollm2-135m-draft int8"
    assert set(names[-2:]) == {"ngram", "suffix"}


def test_alike_grids_and_rows_without_a_measurement_are_folded() -> None:
    results = sample_results()
    load = results.loads[0]
    hopes = tuple(
        replace(load.arms[1], name=f"ngram k={k}", speculation=Speculation("ngram", k=k),
                state=PREDICTED, measured=None, predicted=1.2)
        for k in range(6, 12)
    )  # fmt: skip
    tried = replace(load.arms[1], measured=ratio_about(1.2, 0.1, 3), state=PROFILED)
    arms = (load.arms[0], tried, *load.arms[2:], *hopes)
    section = speedups_section(replace(results, loads=(replace(load, arms=arms),)))
    assert section.count("<figure>") == 5
    shown, _, rest = section.partition("<summary>2 more proposers</summary>")
    assert (shown.count("<figure>"), rest.count("<figure>")) == (3, 2)
    assert "<summary>7 draft lengths that were not measured</summary>" in rest


def test_what_nobody_predicted_is_not_called_predicted() -> None:
    results = sample_results()
    load = results.loads[0]
    arms = [
        replace(arm, state=PREDICTED, measured=None, predicted=None, reason="the run ended before")
        for arm in load.arms
        if arm.state != BASELINE
    ]
    section = speedups_section(replace(results, loads=(replace(load, arms=tuple(arms)),)))
    assert section.count("<b>not measured</b>") == len(arms)
    assert "<b>predicted</b>" not in section


def test_a_measurement_that_is_no_more_than_a_hint() -> None:
    assert is_unsure(ratio_about(1.4, 0.05, 4)), "no interval"
    assert is_unsure(ratio_about(1.05, 0.2, 20)), "1 is in it"
    assert not is_unsure(ratio_about(1.4, 0.05, 20))
    assert not is_unsure(ratio_about(0.7, 0.05, 20))


def test_the_star_and_the_judged() -> None:
    results = sample_results()
    section = speedups_section(results)
    assert section.count("<b>★ ") == 2
    assert section.count("<b>◇ ") == 1, "of the load at which it does not pay"
    off = speedups_section(replace(results, main_load="concurrency 16"))
    assert "★" not in off
    assert off.count("<b>◇ ") == 3


def test_rows_go_up() -> None:
    section = speedups_section(sample_results())
    for grid in section.split("<figure>")[1:]:
        rows = [int(k) for k in re.findall(r'scope="row">k=(\d+)<', grid)]
        assert rows
        assert rows == sorted(set(rows))


def test_off_is_no_proposer_even_where_it_failed() -> None:
    assert "off" not in {grid.proposer for grid in speedup_grids(nothing_measured())}
    assert nothing_measured().loads[0].off is None


def test_heat() -> None:
    found = [heat(each, 2.0) for each in (1.0, 2.0, 0.5, 8.0, math.sqrt(2))]
    assert [round(each, 6) for each in found] == [0, 1, -1, 1, 0.5]
    assert [heat(each, 2.0) for each in (None, math.nan, 0.0)] == [0, 0, 0]


def test_the_scale_holds_all_of_it() -> None:
    grids = speedup_grids(sample_results())
    end = heat_end(grids)
    found = [arm.speedup or 1 for grid in grids for arm in grid.arms.values()]
    assert max(found) <= end
    assert min(found) >= 1 / end
    assert heat_end([]) == 1.25

from __future__ import annotations

import math

from outdraft.report.figures.arms import draft_length, off_of, proposer_of
from outdraft.report.figures.speedups import Cell, heat_end, speedup_grids
from outdraft.testing.odd_results import nothing_measured
from outdraft.testing.sample_results import sample_results
from outdraft.tune.results import BASELINE, FAILED, PREDICTED, ArmResult


def arm(predicted: float | None, state: str = PREDICTED) -> ArmResult:
    return ArmResult("ngram k=3", {"method": "ngram", "k": 3}, state, predicted=predicted)


def test_every_arm_has_its_cell() -> None:
    results = sample_results()
    grids = speedup_grids(results)
    for load in results.loads:
        for each in load.arms:
            cells = [
                grid.cells[(draft_length(each), load.name)]
                for grid in grids
                if grid.proposer == proposer_of(each) and each.state != BASELINE
            ]
            assert [cell.arm for cell in cells] == ([] if each.state == BASELINE else [each])


def test_the_fastest_proposer_first_and_the_only_predicted_last() -> None:
    names = [grid.proposer for grid in speedup_grids(sample_results())]
    assert names[0] == "draft_model smollm2-135m-draft int8"
    assert set(names[-2:]) == {"ngram", "suffix"}


def test_rows_go_up() -> None:
    for grid in speedup_grids(sample_results()):
        assert list(grid.ks) == sorted(grid.ks, key=lambda k: k or 0)


def test_off_is_no_proposer_even_where_it_failed() -> None:
    assert "off" not in {grid.proposer for grid in speedup_grids(nothing_measured())}
    assert off_of(nothing_measured().loads[0]) is None


def test_heat() -> None:
    found = [Cell(arm(each)).heat(2.0) for each in (1.0, 2.0, 0.5, 8.0, math.sqrt(2))]
    assert [round(each, 6) for each in found] == [0, 1, -1, 1, 0.5]
    assert [Cell(arm(each)).heat(2.0) for each in (None, math.nan, 0.0)] == [0, 0, 0]


def test_the_scale_holds_all_of_it() -> None:
    grids = speedup_grids(sample_results())
    end = heat_end(grids)
    found = [cell.estimate or 1 for grid in grids for cell in grid.cells.values()]
    assert max(found) <= end
    assert min(found) >= 1 / end
    assert heat_end([]) == 1.25


def test_a_name_without_its_draft_length() -> None:
    assert proposer_of(arm(1.0)) == "ngram"
    assert proposer_of(ArmResult("k=3", {"k": 3}, FAILED)) == "k=3"
    assert draft_length(ArmResult("x", {}, FAILED)) is None

"""What `tune` prints at its end, in terminals of any width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from outdraft.report.tables import tune_table
from outdraft.tune.arm import short_names
from outdraft.tune.results import Results
from tests.report.odd_results import forty_arms, no_acceptance, out_of_time
from tests.report.sample_results import sample_results


@pytest.mark.parametrize("make", [sample_results, forty_arms, no_acceptance, out_of_time])
@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_lines_fit_and_no_word_is_broken(width: int, make: Callable[[], Results]) -> None:
    results = make()
    whole, fitting = tune_table(results), tune_table(results, width)
    assert max(map(len, fitting.splitlines())) <= width
    flat = " ".join(fitting.split())
    assert set(flat.split()) - set(whole.replace(":", " : ").split()) - set(whole.split()) <= {
        "speedup", "≈"
    }  # fmt: skip
    for line in whole.splitlines():
        if line.startswith(("note: ", "range: ", "higher: ", "pruned: ")):
            assert " ".join(line.split()) in flat


def test_a_narrow_terminal_has_one_figure_for_each_arm_and_says_the_rest_below() -> None:
    results = sample_results()
    fitting = tune_table(results, 80)
    short = short_names([arm.speculation for arm in results.loads[0].arms])
    assert " predicted  measured" not in fitting
    assert "speedup over off" in fitting
    best = results.loads[0].best_arm
    assert best is not None
    [line] = [each for each in fitting.splitlines() if each.endswith("* best")][:1]
    assert line.startswith(f"{short[best.name]} ")


def test_arms_that_nothing_is_known_of_are_counted_and_not_listed() -> None:
    results = out_of_time()
    [first, *_] = results.loads
    unknown = [replace(arm, predicted=None) for arm in first.arms]
    told = tune_table(replace(results, loads=(replace(first, arms=tuple(unknown)),)))
    assert f"… and {len(unknown) - 1} more in the report" in told
    assert unknown[-1].name not in told

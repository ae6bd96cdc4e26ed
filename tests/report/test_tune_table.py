from __future__ import annotations

from dataclasses import replace

from outdraft.report.tune_table import best_line, tune_table
from outdraft.testing.sample_results import sample_results
from outdraft.tune.results import BEST, DROPPED, PREDICTED, RACED, Results


def without_measurement(results: Results) -> Results:
    """As when the budget ended before the arm that leads had run."""
    loads = tuple(
        replace(load, arms=tuple(replace(arm, measured=None) for arm in load.arms), verdict=None)
        for load in results.loads
    )
    return replace(results, loads=loads)


def test_the_last_line() -> None:
    results = sample_results()
    assert " over off · acceptance 0." in best_line(results)
    line = best_line(without_measurement(results))
    assert "x predicted only · " in line
    assert "over off" not in line
    assert line.endswith("INCONCLUSIVE")


def test_the_table_says_what_its_intervals_are_worth() -> None:
    results = sample_results()
    assert "SHIP · intervals of 95 %: all looks and arms" in tune_table(results)
    assert "intervals of" not in tune_table(without_measurement(results))


def test_what_was_raced_stands_above_mere_predictions() -> None:
    results = sample_results()
    load = results.loads[0]
    hopes = tuple(
        replace(arm, predicted=9.0) if arm.state == PREDICTED else arm for arm in load.arms
    )
    assert any(arm.predicted == 9.0 for arm in hopes)
    table = tune_table(replace(results, loads=(replace(load, arms=hopes),)))
    lines = table.splitlines()
    raced = [arm.name for arm in hopes if arm.state in (BEST, RACED, DROPPED)]
    places = [i for i, line in enumerate(lines) if any(line.startswith(f"{n} ") for n in raced)]
    first_hope = next((i for i, line in enumerate(lines) if "9.00x" in line), len(lines))
    assert places
    assert max(places) < first_hope

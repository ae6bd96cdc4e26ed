"""The mean of running requests over blocks, and when it is said to be too low."""

from __future__ import annotations

import pytest

from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.measure.running import RunningRequests, mean_of_blocks


def test_the_interval_is_over_blocks() -> None:
    assert mean_of_blocks([]) is None
    assert mean_of_blocks([62.0]) == RunningRequests(62.0, None, None)
    found = mean_of_blocks([60.0, 62.0, 64.0])
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((62, 57.03, 66.97), abs=0.01)
    assert str(found) == "62.0 [57.0, 67.0]"
    assert str(RunningRequests(62.0, None, None)) == "62.0"


@pytest.mark.parametrize(
    ("means", "is_short"),
    [
        ([48, 48.5, 47.9], True),
        ([58, 58.5, 57.9], False),  # nine tenths and more
        ([48], False),  # one block does not tell
        ([30, 62, 64], False),  # below nine tenths on average, by chance
    ],
)
def test_fewer_than_the_load_names(means: list[float], is_short: bool) -> None:
    found = mean_of_blocks(means)
    assert found is not None
    assert found.is_short_of(64) is is_short


@pytest.mark.parametrize(("concurrency", "is_said"), [(1, False), (2, True)])
def test_one_at_a_time_no_server_runs_fewer(concurrency: int, is_said: bool) -> None:
    """While its prompt is read a gauge says 0: that was taken for a limit."""
    means = [0.94, 0.81, 0.63, 0.88, 0.76]
    compared = Comparison(ComparisonSettings(concurrency=concurrency), running={"baseline": means})
    assert bool(compared.short_loads) == is_said

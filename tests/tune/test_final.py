from __future__ import annotations

import pytest

from outdraft.stats.ratios import Ratio
from outdraft.tune.final import MAX_FINAL_BLOCKS, num_final_blocks


@pytest.mark.parametrize(
    ("low", "high", "num_blocks"),
    [
        (1.9, 2.1, 10),  # narrow enough: the fewest
        (1.8, 2.2, 21),  # twice as wide as wanted: four times as many
        (1.0, 4.0, MAX_FINAL_BLOCKS),
        (None, None, MAX_FINAL_BLOCKS),  # too few blocks to know
        (0.0, 1e308, MAX_FINAL_BLOCKS),
    ],
)
def test_as_many_blocks_as_the_race_shows_are_needed(
    low: float | None, high: float | None, num_blocks: int
) -> None:
    assert num_final_blocks(Ratio(2.0, low, high, 0.95, 20, 5)) == num_blocks


def test_an_arm_that_never_raced() -> None:
    assert num_final_blocks(None) == MAX_FINAL_BLOCKS

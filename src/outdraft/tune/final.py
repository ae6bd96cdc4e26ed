"""How many blocks the final of a load has: set before it begins, by what the race showed. Pure.

An interval that is looked at once, after a number of blocks that its own results do not influence,
is right as it stands: no error is spent on looks or on the choice of the arm.
"""

from math import ceil, log

from outdraft.stats.ratios import Ratio

MIN_FINAL_BLOCKS, MAX_FINAL_BLOCKS = 10, 40
_PRECISION = 0.05  # half the width of the interval, as a logarithm; narrower is not worth the time


def num_final_blocks(raced: Ratio | None) -> int:
    """As many as should make the interval that narrow, if pairs scatter as they did in the race.
    The time may end before. `raced`: the arm's ratio over off in the race."""
    if raced is None or raced.low is None or raced.high is None or raced.low <= 0:
        return MAX_FINAL_BLOCKS
    times_as_many = (log(raced.high / raced.low) / 2 / _PRECISION) ** 2
    return min(max(ceil(raced.num_blocks * times_as_many), MIN_FINAL_BLOCKS), MAX_FINAL_BLOCKS)

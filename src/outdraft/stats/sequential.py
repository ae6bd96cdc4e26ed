"""Looking at the data while it comes in without more false results, and when to stop.

Looks are set beforehand. Each has a level of its own, so that all their intervals together miss
the truth in at most 1 - level of all comparisons: the chances to be wrong are added up, which holds
however the looks depend on each other. Boundaries that use that dependence (Pocock, O'Brien and
Fleming) are a little narrower, but assume normal statistics; with Student's from five blocks they
miss more often than they claim. benchmarks/coverage.py counts how often these do.

Up to the fraction t of the blocks, t² of the error is spent. A clear speedup shows in the first
five blocks anyway; what is saved there helps the close cases at the end.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np
from scipy import special

from outdraft.stats.ratios import LEVEL, MIN_BLOCKS, Ratio

DELTA = 0.03  # a difference below this is not worth a change
_MAX_TIMES_AS_MANY = 25  # blocks; an estimate that needs more lies on a boundary


@dataclass(frozen=True, slots=True)
class Look:
    """Intervals are computed after so many blocks, at this level."""

    num_blocks: int
    level: float


def plan_looks(max_blocks: int, num_looks: int = 4, *, level: float = LEVEL) -> tuple[Look, ...]:
    """Looks at even distances, from MIN_BLOCKS to `max_blocks`."""
    if max_blocks < MIN_BLOCKS or num_looks < 1:
        raise ValueError(f"{num_looks} looks at {max_blocks} blocks, need 1 at {MIN_BLOCKS}")
    step = (max_blocks - MIN_BLOCKS) / max(num_looks - 1, 1)
    places = sorted({round(max_blocks - i * step) for i in range(num_looks)})
    spent = [(1 - level) * (blocks / max_blocks) ** 2 for blocks in places]
    return tuple(
        Look(blocks, 1 - (after - before))
        for blocks, (before, after) in zip(places, pairwise([0.0, *spent]), strict=True)
    )


class Zone(StrEnum):
    WIN = "win"  # better by more than delta
    LOSE = "lose"  # worse by more than delta
    TIE = "tie"  # within delta of 1, either way
    UNCLEAR = "unclear"


def possible_zones(ratio: Ratio, delta: float = DELTA) -> frozenset[Zone]:
    """The zones that the interval reaches into; all others are ruled out."""
    low, high = ratio.low or 0.0, ratio.high or math.inf
    reached = {
        Zone.WIN: high > 1 + delta,
        Zone.LOSE: low < 1 - delta,
        Zone.TIE: low <= 1 + delta and high >= 1 - delta,
    }
    return frozenset(zone for zone, is_reached in reached.items() if is_reached)


def zone(ratio: Ratio, delta: float = DELTA) -> Zone:
    """Where the whole interval lies."""
    possible = possible_zones(ratio, delta)
    return next(iter(possible)) if len(possible) == 1 else Zone.UNCLEAR


def noise_floor(same: Ratio) -> float | None:
    """The difference that a comparison of an arm with itself cannot rule out.

    No smaller difference can be measured on this machine, so it is the least useful delta. An
    interval that does not contain 1 means that the measurement favours one side.
    """
    return None if same.low is None or same.high is None else max(same.high, 1 / same.low) - 1


def pairs_needed(ratio: Ratio, delta: float = DELTA) -> int | None:
    """About how many more pairs would make the zone clear, if the estimate is right.

    0 if it is clear. None if more will hardly help: the estimate is too close to a boundary. With
    too few blocks for an interval, as many as are missing. Blocks are assumed to keep their size;
    then the interval shrinks with the root of their number, and with Student's quantile.
    """
    pairs_per_block = ratio.num_pairs / ratio.num_blocks
    if ratio.low is None or ratio.high is None:
        return math.ceil((MIN_BLOCKS - ratio.num_blocks) * pairs_per_block)
    if zone(ratio, delta) is not Zone.UNCLEAR:
        return 0
    reach = math.log(ratio.high / ratio.low) / 2
    edges = [edge for edge in (1 - delta, 1 + delta) if edge > 0]
    margin = min(abs(math.log(ratio.estimate / edge)) for edge in edges)
    blocks = np.arange(ratio.num_blocks, _MAX_TIMES_AS_MANY * ratio.num_blocks + 1)
    shrinks = special.stdtrit(blocks - 1, (1 + ratio.level) / 2) / np.sqrt(blocks)
    enough = np.flatnonzero(shrinks / shrinks[0] * reach < margin)
    if not len(enough):
        return None
    return math.ceil((int(blocks[enough[0]]) - ratio.num_blocks) * pairs_per_block)

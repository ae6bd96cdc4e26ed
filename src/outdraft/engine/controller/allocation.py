"""How many draft tokens each sequence of a batch gets: those that give most tokens per second.

The compiled library finds what is best at a pace (`native/allocation.h`). Where the pace is not
given, the search begins with that of a step without drafts and is repeated with the goodput that it
found until it finds no larger one: that is the largest there is (Dinkelbach's method). The
controller's rounds call it in C; this is how simulated policies and tests do.
"""

from __future__ import annotations

from ctypes import byref, c_double

import numpy as np
from numpy.typing import NDArray

from outdraft.engine.native.rounds import COffers, CPrices, rounds_library
from outdraft.step_costs import ProposerCosts

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

_MOST_PASSES = 12


def allocate(
    gains: Floats,
    verification: Floats,
    prices: ProposerCosts,
    *,
    is_drafted: NDArray[np.bool_] | None = None,
    pace: float | None = None,
    most_seconds: float = np.inf,
) -> Ints:
    """(n,) draft tokens of every sequence.

    gains: (n, K) expected tokens that position j adds to sequence i, falling with j; 0 where it
    may not draft. verification: seconds by draft tokens in all, (n * K + 1,) or more. is_drafted:
    (n,) sequences whose tokens cost `prices`; the others' were looked up and cost nothing. None:
    all. pace: tokens per second that a second is worth elsewhere. With it, tokens - pace * seconds
    is made largest, which is the goodput over all rounds and not that of this one; every sequence
    has a token of its own. most_seconds: that the round may take.
    """
    num, width = gains.shape
    assert len(verification) > num * width
    kept = np.ascontiguousarray(gains, np.float64), np.ascontiguousarray(verification, np.float64)
    values, memory = np.ones(num), np.empty(max(2 * num * width, 1))
    drafted = np.ones(num, np.int32) if is_drafted is None else is_drafted.astype(np.int32)
    lengths, best = np.zeros(num, np.int32), np.zeros(num, np.int32)
    batch = COffers(
        kept[0].ctypes.data, values.ctypes.data, kept[1].ctypes.data, drafted.ctypes.data,
        CPrices(prices.overhead, prices.per_depth, prices.per_token), 0.0, most_seconds,
        num, width, memory.ctypes.data,
    )  # fmt: skip
    goodput = num / float(verification[0]) if pace is None else pace
    for _ in range(1 if pace is not None else _MOST_PASSES):
        batch.pace = goodput
        rounds_library().allocate_drafts(byref(batch), lengths.ctypes.data, byref(c_double()))
        by_draft = lengths * drafted
        seconds = verification[int(lengths.sum())]
        seconds += prices.seconds(int(by_draft.max(initial=0)), int(by_draft.sum()))
        tokens = num + float((gains * (np.arange(width) < lengths[:, None])).sum())
        if pace is None and tokens / seconds <= goodput * (1 + 1e-12):
            break
        best, goodput = lengths.copy(), tokens / float(seconds)
    return best

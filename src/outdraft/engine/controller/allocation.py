"""How many draft tokens each sequence of a batch gets: those that give most tokens per second.

The expected tokens of a round are a sum over draft tokens: each adds the chance that it and all
before it are accepted. That falls with the position, so the best t draft tokens of a batch are the
t largest chances. For every depth of the draft and every t the goodput follows from sums over the
chances in order, and the largest is taken: no other allocation is better. Where tokens differ in
what they cost to draft, their order depends on the goodput itself; the search is repeated with the
goodput that it found until it finds no larger one (Dinkelbach's method).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_PASSES = 12


class Prices(NamedTuple):
    """What drafting costs in this round, in seconds."""

    overhead: float = 0.0  # where anything is drafted
    per_depth: float = 0.0
    per_token: float = 0.0


class Allocation(NamedTuple):
    lengths: Ints  # (n,) draft tokens of every sequence
    goodput: float  # expected tokens (weighted) per second
    price: float  # expected tokens that a draft token more has to bring


def allocate(
    gains: Floats,
    verification: Floats,
    prices: Prices,
    *,
    emitted: float,
    is_drafted: NDArray[np.bool_] | None = None,
    pace: float | None = None,
) -> Allocation:
    """The lengths with the largest goodput.

    gains: (n, K) expected tokens that position j adds to sequence i, falling with j; 0 where it
    may not draft. verification: seconds by draft tokens in all, (n * K + 1,) or more. emitted:
    expected tokens without drafts (n where none weighs more). is_drafted: (n,) sequences whose
    tokens cost `prices`; the others' were looked up and cost nothing. None: all.
    pace: tokens per second that a second is worth elsewhere. With it, tokens - pace * seconds is
    made largest, which is the goodput over all rounds and not that of this one.
    """
    num = len(gains)
    flat = gains.T.ravel()  # position by position
    best = Allocation(np.zeros(num, np.int64), emitted / float(verification[0]), 0.0)
    worth = best.goodput if pace is None else pace  # of a second, in tokens, at least
    # No token is worth verifying that brings less than the cheapest one costs.
    items = (flat > worth * _least_rise(verification)).nonzero()[0]
    if not len(items):
        return best
    flat, depths = flat[items], items // num + 1
    is_mixed = is_drafted is not None and not is_drafted.all()
    if is_drafted is not None and is_mixed:
        depths = depths * is_drafted[items % num]
    levels = np.arange(0 if is_mixed else 1, int(depths.max()) + 1)[:, None]
    shared = prices.per_depth * levels + prices.overhead * (levels > 0)
    spent = prices.per_token * (depths > 0)
    by_count = verification + prices.per_token * np.arange(len(verification))
    for _ in range(_MOST_PASSES):
        # Of equals the earlier position comes first.
        key = worth * spent - flat if is_mixed else _TINY * items - flat
        order = key.argsort(kind="stable" if is_mixed else None)
        allowed = depths[order] <= levels  # (depths, draft tokens)
        counts = allowed.cumsum(axis=1, dtype=np.intp)
        values = (flat[order] * allowed).cumsum(axis=1)
        values += emitted
        if is_mixed:
            seconds = verification.take(counts) + (spent[order] * allowed).cumsum(axis=1)
        else:
            seconds = by_count.take(counts)
        seconds += shared
        score = values / seconds if pace is None else values - pace * seconds
        row, column = divmod(int(score.argmax()), len(items))
        bar = best.goodput * (1 + 1e-12) if pace is None else emitted - pace * verification[0]
        if score[row, column] <= bar:
            break
        taken = order[: column + 1][allowed[row, : column + 1]]
        lengths = np.bincount(items[taken] % num, minlength=num)
        goodput = float(values[row, column] / seconds[row, column])
        worth = goodput if pace is None else pace
        more = verification[min(len(taken) + 1, len(verification) - 1)] - verification[len(taken)]
        drafting = prices.per_token if levels[row, 0] else 0.0
        best = Allocation(lengths, goodput, worth * (max(float(more), 0.0) + drafting))
        if not is_mixed or pace is not None:
            break
    return best


_TINY = 1e-13


def _least_rise(verification: Floats) -> float:
    return max(float((verification[1:] - verification[:-1]).min(initial=np.inf)), 0.0)

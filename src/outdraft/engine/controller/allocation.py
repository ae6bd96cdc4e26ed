"""How many draft tokens each sequence of a batch gets: those that give most tokens per second.

The expected tokens of a round are a sum over draft tokens: each adds the chance that it and all
before it are accepted. That falls with the position, so the best t draft tokens of a batch are the
t largest chances. With seconds counted as tokens at some pace, what every depth of the draft and
every t is worth follows from sums over the chances in order, and the largest is taken: no other
allocation is better. Where the pace is not given, the search begins with that of a step without
drafts and is repeated with the goodput that it found until it finds no larger one: that is the
largest there is (Dinkelbach's method).
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
    plain = Allocation(np.zeros(len(gains), np.int64), emitted / float(verification[0]), 0.0)
    if pace is not None:
        return _best_at(pace, gains, verification, prices, emitted, is_drafted) or plain
    best = plain
    for _ in range(_MOST_PASSES):
        found = _best_at(best.goodput, gains, verification, prices, emitted, is_drafted)
        if found is None or found.goodput <= best.goodput * (1 + 1e-12):
            break
        best = found
    return best


def _best_at(
    pace: float,
    gains: Floats,
    verification: Floats,
    prices: Prices,
    emitted: float,
    is_drafted: NDArray[np.bool_] | None,
) -> Allocation | None:
    """None where no drafts are best."""
    num, flat = len(gains), gains.T.ravel()  # position by position
    is_mixed = is_drafted is not None and not is_drafted.all()
    drafting = pace * prices.per_token
    net = flat - drafting
    if is_drafted is not None and is_mixed:
        net = flat - drafting * np.tile(is_drafted, gains.shape[1])
    # No token is verified that brings less than the cheapest one costs.
    rise = float((verification[1:] - verification[:-1]).min(initial=np.inf))
    items = (net > pace * max(rise, 0.0)).nonzero()[0]
    if not len(items):
        return None
    net = net[items]
    order = (_TINY * items - net).argsort()  # of equals the earlier position comes first
    items, net = items[order], net[order]
    depths = items // num + 1
    if is_drafted is not None and is_mixed:
        depths *= is_drafted[items % num]
    paid = pace * verification[: len(net) + 1]
    worth = net.cumsum()
    worth -= paid[1:]
    last = int(worth.argmax())
    deepest = int(depths[: last + 1].max())
    best = float(worth[last]) - pace * _shared(prices, deepest)
    taken = items[: last + 1]
    if deepest > (0 if is_mixed else 1) and prices.per_depth + prices.overhead > 0:
        # Less deep is worth less and costs less.
        levels = np.arange(0 if is_mixed else 1, deepest)[:, None]
        allowed = depths <= levels  # (levels, draft tokens)
        scores = (net * allowed).cumsum(axis=1)
        scores -= paid.take(allowed.cumsum(axis=1, dtype=np.intp))
        scores -= [[pace * _shared(prices, each)] for each in range(deepest - len(levels), deepest)]
        row, last = divmod(int(scores.argmax()), len(net))
        if scores[row, last] > best:
            best, taken = float(scores[row, last]), items[: last + 1][allowed[row, : last + 1]]
            deepest = int(levels[row, 0])
    num_taken = len(taken)
    if best <= -float(paid[0]):
        return None
    num_drafted = num_taken
    if is_drafted is not None and is_mixed:
        num_drafted = int(is_drafted[taken % num].sum())
    seconds = float(verification[num_taken]) + _shared(prices, deepest)
    tokens = emitted + best + pace * seconds + drafting * num_drafted
    more = float(verification[min(num_taken + 1, len(verification) - 1)] - verification[num_taken])
    return Allocation(
        np.bincount(taken % num, minlength=num),
        tokens / (seconds + prices.per_token * num_drafted),
        pace * max(more, 0.0) + drafting,
    )


_TINY = 1e-13


def _shared(prices: Prices, depth: int) -> float:
    return prices.overhead + prices.per_depth * depth if depth else 0.0

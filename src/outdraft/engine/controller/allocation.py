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

_MOST_ROUNDS = 12


class Allocation(NamedTuple):
    lengths: Ints  # (n,) draft tokens of every sequence
    goodput: float  # expected tokens (weighted) per second
    price: float  # expected tokens that a draft token more has to bring


class Prices(NamedTuple):
    """What drafting costs in this round, in seconds."""

    overhead: float = 0.0  # where anything is drafted
    per_depth: float = 0.0
    per_token: float = 0.0


def allocate(
    gains: Floats,
    verification: Floats,
    prices: Prices,
    *,
    emitted: float,
    is_drafted: NDArray[np.bool_] | None = None,
) -> Allocation:
    """The lengths with the largest goodput.

    gains: (n, K) expected tokens that position j adds to sequence i, falling with j; 0 where it
    may not draft. verification: seconds by draft tokens in all, (n * K + 1,) or more. emitted:
    expected tokens without drafts (n where none weighs more). is_drafted: (n,) sequences whose
    tokens cost `prices`; the others' were looked up and cost nothing. None: all.
    """
    num, width = gains.shape
    flat = gains.T.ravel()  # position by position, so that of equals the earlier comes first
    depth = np.repeat(np.arange(1, width + 1), num)
    if is_drafted is not None:
        depth = depth * np.tile(is_drafted, width)
    is_mixed = is_drafted is not None and prices.per_token > 0 and 0 < is_drafted.sum() < num
    spent = np.where(depth > 0, prices.per_token, 0.0)
    best = Allocation(np.zeros(num, np.int64), emitted / verification[0], 0.0)
    for _ in range(_MOST_ROUNDS):
        order = np.argsort(best.goodput * spent - flat if is_mixed else -flat, kind="stable")
        found = _best_in_order(order, flat, depth, spent, verification, prices, emitted, num)
        if found is None or found.goodput <= best.goodput * (1 + 1e-12):
            break
        best = found
        if not is_mixed:
            break
    return best


def _best_in_order(
    order: Ints,
    flat: Floats,
    depth: Ints,
    spent: Floats,
    verification: Floats,
    prices: Prices,
    emitted: float,
    num: int,
) -> Allocation | None:
    order = order[flat[order] > 0]
    if not len(order):
        return None
    ordered, depths = flat[order], depth[order]
    deepest = int(depths.max())
    allowed = depths <= np.arange(deepest + 1)[:, None]  # (depths, items)
    counts = np.cumsum(allowed, axis=1)
    tokens = emitted + np.cumsum(np.where(allowed, ordered, 0.0), axis=1)
    shared = prices.per_depth * np.arange(deepest + 1)
    shared[1:] += prices.overhead
    drafting = np.cumsum(np.where(allowed, spent[order], 0.0), axis=1) + shared[:, None]
    goodputs = tokens / (verification[counts] + drafting)
    row, column = np.unravel_index(int(goodputs.argmax()), goodputs.shape)
    taken = order[: column + 1][allowed[row, : column + 1]]
    lengths = np.bincount(taken % num, minlength=num)
    goodput = float(goodputs[row, column])
    at = len(taken)
    more = verification[min(at + 1, len(verification) - 1)] - verification[at]
    price = goodput * max(float(more) + (prices.per_token if row else 0.0), 0.0)
    return Allocation(lengths, goodput, price)

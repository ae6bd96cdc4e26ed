"""The mathematics of speculation's worth, in one place: tokens, seconds, what is gained.

A round proposes k draft tokens and verifies them in one step of k+1. Two numbers decide about it:

    tokens  it emits on average: those accepted, and one of the target's own
    cost    it has, in plain steps: 1 is what one token costs without speculation

and the speedup is tokens / cost. Acceptance comes in three forms, not to be mixed up:

    accepted[i]  how often place i of the draft is accepted, out of all rounds. Falls with i, as
                 all places before must be accepted too. This is what servers count per position.
    chance       of a place to be accepted once those before it were; if it is the same at every
                 place (the usual idealization), accepted[i] is chance ** (i + 1).
    rate         the acceptance rate: accepted draft tokens / proposed ones, the mean of accepted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul


def accepted_from_chances(chances: Sequence[float]) -> list[float]:
    """`accepted`, from the chance at each place given that those before it were accepted."""
    return list(accumulate(chances, mul))


def expected_tokens(accepted: Sequence[float]) -> float:
    """Tokens that a round of k = len(accepted) emits on average: 1 to k + 1."""
    return 1 + math.fsum(accepted)


def expected_tokens_at(chance: float, k: int) -> float:
    """The same with one chance for all places: (1 - chance^(k+1)) / (1 - chance), also at 1."""
    return math.fsum(chance**i for i in range(k + 1))


def round_cost(k: int, *, draft: float, verify: float, step: float) -> float:
    """What a round costs in plain steps, from seconds: one draft token, verifying k + 1, a step.

    Without a draft a round *is* a plain step, whatever was measured.
    """
    return (draft * k + verify) / step if k else 1.0


def speedup(tokens: float, cost: float) -> float:
    """Times as fast as without speculation, for rounds of so many tokens and such cost."""
    return tokens / cost


def ceiling(k: float, cost: float) -> float:
    """The speedup if everything were accepted."""
    return speedup(k + 1, cost)


def break_even_rate(k: float, cost: float) -> float | None:
    """The acceptance rate from which on such a round pays. None if not even 1 would do.

    It needs no idealization: 1 + k * rate tokens come out, however acceptance falls off.
    """
    if cost > k + 1:
        return None
    return max((cost - 1) / k, 0.0) if k else 0.0


def break_even_chance(k: int, cost: float) -> float | None:
    """The chance from which on such a round pays, if all places have it. None if not even 1 do."""
    if cost > k + 1:
        return None
    if cost <= 1:
        return 0.0
    if cost == k + 1:
        return 1.0
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if expected_tokens_at(middle, k) >= cost else (middle, high)
    return high


def best_k(accepted: Sequence[float], costs: Sequence[float]) -> int:
    """The k of the highest speedup, the smallest of equals; 0 where none pays.

    costs[k] is the cost of a round of k, from costs[0] = 1 to costs[len(accepted)].
    """
    if len(costs) != len(accepted) + 1:
        raise ValueError(f"{len(costs)} costs for {len(accepted)} places, need one more than those")
    worth = [speedup(expected_tokens(accepted[:k]), cost) for k, cost in enumerate(costs)]
    return worth.index(max(worth))


def plain_seconds(num_emitted: int, num_sequences: int, step_seconds: float) -> float:
    """What the tokens of one decoding step would have taken without speculation.

    Plain decoding gives each of the sequences one token a step, and such a step takes
    `step_seconds`.
    """
    return num_emitted / num_sequences * step_seconds


def net_benefit(plain: float, spent: float) -> float:
    """Seconds saved for each second spent: 0 is break-even, 0.5 is 1.5 times as fast."""
    return plain / spent - 1

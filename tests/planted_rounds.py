"""Rounds with a known truth: what they emit, what they cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul


def accepted_from_chances(chances: Sequence[float]) -> list[float]:
    """Share of rounds that accept each position, from the chance of each given those before it."""
    return list(accumulate(chances, mul))


def expected_tokens(accepted: Sequence[float]) -> float:
    """Tokens of a round, 1 to k + 1, from the share of rounds that accept each position."""
    return 1 + math.fsum(accepted)


def round_cost(k: int, *, draft: float, verify: float, step: float) -> float:
    """Cost of a round in plain steps, from the seconds of one draft token, of verifying k + 1
    tokens and of a plain step. Without a draft a round is a plain step."""
    return (draft * k + verify) / step if k else 1.0


def expected_tokens_at(chance: float, k: int) -> float:
    """The same chance at every position: (1 - chance^(k+1)) / (1 - chance), also at 1."""
    return math.fsum(chance**i for i in range(k + 1))

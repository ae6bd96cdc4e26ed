"""What speculation is worth: tokens of a round, its cost, and the speedup that follows. Pure.

A round proposes k draft tokens and verifies them in one step of k+1. Two numbers decide:

    tokens  that it emits on average: the accepted ones, and one of the target's own
    cost    in plain steps: 1 is what one token costs without speculation

The speedup is tokens / cost. `tune` predicts, `decide` checks, the server reports and the engine's
controller chooses with the functions of this module. Acceptance comes as counts (`acceptance.py`),
costs as seconds of steps (`step_costs.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outdraft.acceptance import Acceptance

_NEGLIGIBLE = 1e-6
_ALMOST_SURE = 0.999


def speedup(tokens: float, cost: float) -> float:
    """Over no speculation, for rounds of so many tokens at such a cost."""
    return tokens / cost


def survival(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """The chance of each draft position to be accepted together with all before it, from the
    chances (…, positions) of each where all before it are. Their sum is the expected number of
    accepted tokens; each is what its position adds to it."""
    return np.cumprod(rates, axis=-1, dtype=np.float64)


def plain_seconds(num_emitted: int, num_sequences: int, step_seconds: float) -> float:
    """What the tokens of one decoding step would have taken without speculation, where a step of
    `step_seconds` gives each sequence one token."""
    return num_emitted / num_sequences * step_seconds


def net_benefit(plain: float, spent: float) -> float:
    """Seconds saved for each second spent: 0 is break-even, 0.5 is 1.5 times as fast."""
    return speedup(plain, spent) - 1


@dataclass(frozen=True, slots=True)
class RoundCost:
    """What a round costs on this machine."""

    k: float  # draft tokens of a round, on average
    steps: float  # cost, in plain steps

    @property
    def ceiling(self) -> float:
        """The speedup if every draft token were accepted."""
        return speedup(self.k + 1, self.steps)

    @property
    def break_even_rate(self) -> float | None:
        """The acceptance rate from which on a round pays; None if not even 1 would do. A round
        emits 1 + k * rate tokens, however acceptance falls with the position."""
        if self.steps > self.k + 1:
            return None
        return max((self.steps - 1) / self.k, 0.0) if self.k else 0.0


def round_cost_from_speedup(
    counts: Acceptance, num_tokens: int, num_texts: int, speedup: float
) -> RoundCost | None:
    """The cost that explains a measured speedup per token, on any engine.

    `num_texts` texts of together `num_tokens` tokens were written. A step without a draft is
    taken to cost a plain step. None where rounds are not counted, or where the counts do not fit
    together (the server's counters include requests of others).
    """
    steps, rounds = counts.num_steps(num_tokens, num_texts), counts.num_drafts
    if not counts.mean_k or not 0 < rounds <= steps or speedup <= 0:
        return None
    plain_steps = (num_tokens - num_texts) / speedup  # what all steps cost together
    cost = (plain_steps - (steps - rounds)) / rounds
    return RoundCost(counts.mean_k, cost) if cost > 0 else None


@dataclass(frozen=True, slots=True)
class RoundProfile:
    """Rounds of one proposer at draft length `k`, from which every shorter k is predicted.

    A wrong guess ends a round whatever its length; between two wrong guesses the draft length
    alone sets the pace. A stretch of r right guesses and the wrong one after them takes
    ceil((r + 1) / (k + 1)) rounds. A round that accepted a < k tokens ends a stretch. One that
    accepted all k continues a longer stretch if the next guess, which nobody verified, was right
    too; that is taken to be as likely as at the last position that was verified. Under the coupled
    rule a draft guesses the same again at the same position, so this is exact for drafts that
    continue from their own guesses.
    """

    k: int
    rounds_by_accepted: tuple[int, ...]  # rounds that accepted 0, 1, …, k tokens
    num_undrafted: int  # steps without a draft
    fullness: float = 1.0  # mean draft tokens of a round / k

    @classmethod
    def from_counts(
        cls, counts: Acceptance, k: int, num_tokens: int, num_texts: int
    ) -> RoundProfile | None:
        """None where rounds or positions are not counted."""
        reached = (counts.num_drafts, *counts.accepted_per_position[:k])
        if counts.mean_k is None or len(reached) < 2:
            return None
        reached = (*reached, *(0,) * (k + 2 - len(reached)))
        by_accepted = tuple(max(here - beyond, 0) for here, beyond in pairwise(reached))
        undrafted = counts.num_steps(num_tokens, num_texts) - counts.num_drafts
        return cls(k, by_accepted, max(undrafted, 0), min(counts.mean_k / k, 1.0))

    @property
    def num_tokens(self) -> int:
        """After the first ones of the texts."""
        emitted = sum(n * (accepted + 1) for accepted, n in enumerate(self.rounds_by_accepted))
        return self.num_undrafted + emitted

    @property
    def stretches(self) -> dict[int, float]:
        """Tokens of a stretch, the replaced wrong guess included → its share of all stretches."""
        total = sum(self.rounds_by_accepted)
        if not total:
            return {1: 1.0}
        *shorter, whole = self.rounds_by_accepted
        full = whole / total
        reached_last = whole + shorter[-1] if shorter else whole
        continues = min(full * (whole / reached_last if reached_last else 0.0), _ALMOST_SURE)
        ends = [*(count / total for count in shorter), full - continues]
        shares: dict[int, float] = {}
        chance, length = 1.0, 0
        while chance > _NEGLIGIBLE:
            for accepted, share in enumerate(ends):
                tokens = length + accepted + 1
                shares[tokens] = shares.get(tokens, 0.0) + chance * share
            chance *= continues
            length += self.k + 1
        return shares

    def tokens_per_round(self, k: int) -> float:
        """With drafts of at most k tokens."""
        shares = self.stretches
        tokens = sum(length * share for length, share in shares.items())
        rounds = sum(-(-length // (k + 1)) * share for length, share in shares.items())
        return tokens / rounds

    def num_rounds_at(self, k: int) -> float:
        """Rounds that the same texts would take with drafts of at most k tokens."""
        return (self.num_tokens - self.num_undrafted) / self.tokens_per_round(k)

    def num_steps_at(self, k: int) -> float:
        return self.num_undrafted + self.num_rounds_at(k)

    def drafted_per_step(self, k: int) -> float:
        """Draft tokens that a step verifies for each sequence, on average."""
        return self.num_rounds_at(k) * k * self.fullness / self.num_steps_at(k)

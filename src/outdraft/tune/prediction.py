"""What an arm would give, before it is measured. Pure.

Where a draft guesses wrong, a round ends whatever its length; between two wrong guesses the draft
length k alone sets the pace. So a stretch of r right guesses and the wrong one behind them takes
ceil((r + 1) / (k + 1)) rounds. How long stretches are, one run of a proposer at its largest draft
length K tells: a round that accepted a < K tokens is the end of a stretch, one that accepted all K
is a piece of a longer one if the guess behind them, which nobody verified, was right too; that
happens as often as at the last place that was verified. Under the coupled rule a draft guesses the
same again at the same place, so this is exact for drafts that go on from their own guesses.

What a step costs follows from the same run: beside a plain one it has draft tokens to compute and
to verify.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from outdraft.records import AcceptanceCounts

_NEGLIGIBLE = 1e-6


@dataclass(frozen=True, slots=True)
class Profile:
    """Of one proposer at draft length `k`."""

    k: int
    rounds_by_accepted: tuple[int, ...]  # rounds that accepted 0, 1, …, k
    num_undrafted: int  # steps without a draft
    fullness: float = 1.0  # of drafts: tokens they have on average, by k

    @property
    def num_rounds(self) -> int:
        return sum(self.rounds_by_accepted)


def profile_of(counts: AcceptanceCounts, k: int, num_tokens: int, num_texts: int) -> Profile | None:
    """From the counts of `num_texts` texts with `num_tokens` tokens; None where rounds or places
    are not counted."""
    reached = (counts.num_drafts, *counts.accepted_per_position[:k])
    if not counts.num_drafts or len(reached) < 2:
        return None
    reached = (*reached, *(0,) * (k + 2 - len(reached)))
    by_accepted = tuple(max(here - beyond, 0) for here, beyond in pairwise(reached))
    steps = num_tokens - num_texts - counts.num_accepted_tokens
    fullness = min(counts.num_draft_tokens / (counts.num_drafts * k), 1.0)
    return Profile(k, by_accepted, max(steps - counts.num_drafts, 0), fullness)


def stretches(profile: Profile) -> dict[int, float]:
    """Tokens of a stretch, the wrong guess replaced → its share of all stretches."""
    whole, *shorter = (*profile.rounds_by_accepted[::-1],)
    total = profile.num_rounds
    if not total:
        return {1: 1.0}
    shares = [count / total for count in shorter[::-1]]  # of rounds that accepted 0, 1, … K - 1
    full = whole / total
    before = whole + shorter[0] if shorter else whole
    goes_on = min(full * (whole / before if before else 0.0), 0.999)
    ends = [*shares, full - goes_on]  # and those whose guess behind K right ones was wrong
    found: dict[int, float] = {}
    chance, length = 1.0, 0
    while chance > _NEGLIGIBLE:
        for accepted, share in enumerate(ends):
            tokens = length + accepted + 1
            found[tokens] = found.get(tokens, 0.0) + chance * share
        chance *= goes_on
        length += profile.k + 1
    return found


def round_tokens(profile: Profile, k: int) -> float:
    """Tokens that a round emits on average with drafts of at most k."""
    shares = stretches(profile)
    tokens = sum(length * share for length, share in shares.items())
    rounds = sum(-(-length // (k + 1)) * share for length, share in shares.items())
    return tokens / rounds


def num_tokens(profile: Profile) -> int:
    """Behind the first ones of the texts."""
    by_accepted = enumerate(profile.rounds_by_accepted)
    return profile.num_undrafted + sum(count * (accepted + 1) for accepted, count in by_accepted)


def num_rounds_at(profile: Profile, k: int) -> float:
    """Rounds the same text would take with drafts of at most k."""
    return (num_tokens(profile) - profile.num_undrafted) / round_tokens(profile, k)


def num_steps_at(profile: Profile, k: int) -> float:
    return profile.num_undrafted + num_rounds_at(profile, k)


def drafted_per_step(profile: Profile, k: int) -> float:
    """Draft tokens that a step verifies on average, of one sequence."""
    return num_rounds_at(profile, k) * k * profile.fullness / num_steps_at(profile, k)


@dataclass(frozen=True, slots=True)
class Curve:
    """What a step with so many draft tokens a sequence costs in plain steps: `at(0)` is 1."""

    known: Mapping[float, float]  # measured: draft tokens → cost
    verify: Callable[[float], float] | None = None  # the cost without computing them, if known

    def at(self, drafted: float) -> float:
        """Between what is known in straight lines; what verifying costs comes on top.

        Without `verify`, verifying is taken to cost what a plain step does.
        """
        base = {each: cost - self._verify(each) for each, cost in self.known.items()}
        points = sorted({0.0: 0.0, **base}.items())  # a draft of nothing costs nothing
        # No step is quicker than a plain one, however the measurements fell.
        return max(between(points, drafted) + self._verify(drafted), 1.0)

    def _verify(self, drafted: float) -> float:
        return 1.0 if self.verify is None else self.verify(drafted)


def between(points: Sequence[tuple[float, float]], at: float) -> float:
    """Straight lines through `points`, the last one goes on."""
    if len(points) == 1:
        return points[0][1]
    for (low, below), (high, above) in pairwise(points):
        if at <= high or high == points[-1][0]:
            return below + (above - below) * (at - low) / (high - low)
    raise AssertionError("the last pair is always taken")

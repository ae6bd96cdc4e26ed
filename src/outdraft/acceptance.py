"""What speculation did, as counts: proposed, accepted, by draft position.

One type for a sequence in the engine, a request on the wire, a server's counters and a whole
run. Counts add up; rates and lengths are worked out from the sums, never averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Acceptance:
    """Counted from what was really proposed, also where k varies. What a server does not report
    stays 0 or empty, and the rates made from it are None."""

    num_drafts: int = 0  # rounds with at least one draft token
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_undrafted: int = 0  # rounds in which nothing was proposed
    # Rounds in which position 0, 1, … of the draft was accepted, or was there at all.
    accepted_per_position: list[int] = field(default_factory=list)
    drafted_per_position: list[int] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Acceptance:
        return cls(**dict(data))

    @classmethod
    def total(cls, counts: Iterable[Acceptance | None]) -> Acceptance:
        """The sum; None counts nothing."""
        sum_of_all = cls()
        for each in counts:
            if each is not None:
                sum_of_all.add(each)
        return sum_of_all

    def record(self, num_drafted: int, num_accepted: int) -> None:
        """Counts one round."""
        if num_drafted == 0:
            self.num_undrafted += 1
            return
        accepted, drafted = self.accepted_per_position, self.drafted_per_position
        is_unknown = self.num_draft_tokens and not drafted  # as in `add`
        self.num_drafts += 1
        self.num_draft_tokens += num_drafted
        self.num_accepted_tokens += num_accepted
        accepted.extend([0] * (num_drafted - len(accepted)))
        for position in range(num_accepted):
            accepted[position] += 1
        if not is_unknown:
            drafted.extend([0] * (num_drafted - len(drafted)))
            for position in range(num_drafted):
                drafted[position] += 1

    def add(self, other: Acceptance) -> None:
        # A server that does not report drafted positions leaves the sum's unknown.
        is_unknown = any(
            each.num_draft_tokens and not each.drafted_per_position for each in (self, other)
        )
        self.num_drafts += other.num_drafts
        self.num_draft_tokens += other.num_draft_tokens
        self.num_accepted_tokens += other.num_accepted_tokens
        self.num_undrafted += other.num_undrafted
        for mine, theirs in (
            (self.accepted_per_position, other.accepted_per_position),
            (self.drafted_per_position, other.drafted_per_position),
        ):
            mine.extend([0] * (len(theirs) - len(mine)))
            for position, count in enumerate(theirs):
                mine[position] += count
        if is_unknown:
            self.drafted_per_position.clear()

    @property
    def num_rounds(self) -> int:
        return self.num_drafts + self.num_undrafted

    @property
    def rate(self) -> float | None:
        """The acceptance rate: accepted draft tokens / proposed ones."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def length(self) -> float | None:
        """The acceptance length: tokens emitted per round that proposed something, the target's
        own token included."""
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None

    @property
    def mean_k(self) -> float | None:
        """Draft tokens of a round that proposed something."""
        return self.num_draft_tokens / self.num_drafts if self.num_drafts else None

    @property
    def rate_per_position(self) -> tuple[float, ...]:
        """How often a position was accepted, of the rounds whose draft had it; of all rounds
        where drafted positions are not reported."""
        accepted = self.accepted_per_position
        drafted = self.drafted_per_position or [self.num_drafts] * len(accepted)
        return tuple(yes / had if had else 0.0 for yes, had in zip(accepted, drafted, strict=False))

    @property
    def survival_per_position(self) -> tuple[float, ...]:
        """How often a position was accepted, of all rounds with a draft: falls with the position,
        because all positions before it must have been accepted too."""
        if not self.num_drafts:
            return ()
        return tuple(count / self.num_drafts for count in self.accepted_per_position)

    def share_drafted(self, num_tokens: int, num_texts: int) -> float | None:
        """Of the steps of such texts, those that had a draft at all: n-grams and suffixes often
        find none. None where the counts do not fit together."""
        steps = self.num_steps(num_tokens, num_texts)
        return self.num_drafts / steps if 0 < self.num_drafts <= steps else None

    def num_steps(self, num_tokens: int, num_texts: int) -> int:
        """Decoding steps in which `num_texts` texts of together `num_tokens` tokens were written:
        the first token of a text comes from its prompt, accepted draft tokens take no step."""
        return num_tokens - num_texts - self.num_accepted_tokens

"""What the engine tells the controller, and what it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from outdraft.engine.confidence import Trust


class Why(StrEnum):
    """The reason for a draft length."""

    PAYS = "pays"  # more tokens per second are expected with this draft
    PROBE = "probe"  # tried again after it did not pay
    LOSES = "does not pay"
    NO_ROOM = "no room"  # the text may not get two tokens more
    NO_PROPOSER = "nothing to propose"
    HELD_BACK = "held back"  # drafts have cost more than they gave, until that is made up for
    HOLDS_UP = "holds others up"  # for a gain of all that is too small for that


@dataclass(frozen=True, slots=True)
class LookupDraft:
    """A draft that a lookup (n-gram, suffix) has found already."""

    proposer: str
    length: int  # tokens
    match: int  # tokens of the text's end that were found earlier


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence that is about to decode."""

    id: int
    temperature: float
    context: int  # tokens before those that are computed
    room: int  # draft tokens that it may get, at most; 0: none
    lookups: tuple[LookupDraft, ...] = ()
    behind: int = 0  # tokens of its text that the draft or head has not read yet
    likeness: float | None = None  # of its prompt to itself: the share of n-grams that come again
    # Seconds per token so far / those of its objective; above 1 it is late. None: no objective.
    lateness: float | None = None
    left: int = 1 << 20  # tokens that its text may still get


@dataclass(frozen=True, slots=True)
class Wish:
    """What the draft is asked for, before anything is verified."""

    id: int
    k: int = 0  # at most; 0: nothing
    trust: Trust | None = None


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What a candidate gets verified."""

    id: int
    proposer: str | None
    k: int
    why: Why


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one candidate's round; with nothing drafted too."""

    id: int
    proposer: str | None
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds that a round took."""

    verification: float  # the rest of the step: the target's run, sampling, bookkeeping
    drafting: Mapping[str, float] = field(default_factory=dict)  # by proposer that drafted

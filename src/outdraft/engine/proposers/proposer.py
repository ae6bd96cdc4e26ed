"""The protocol of proposers: anything that guesses the next tokens of a sequence.

A proposer is asked for drafts before a step and told when a sequence is over. It reads
`sequence.tokens`, which only ever grow. What it remembers of a sequence it keeps under
`sequence.id`, and it catches up by itself when it was not asked for a while: speculation may be
switched on and off in any round. A wrong guess costs time but never changes a text. A proposer
that is also an `Observer` is given the target's hidden states after every step.

`outdraft.testing.contracts.ProposerContract` is the suite that every proposer passes.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from outdraft.engine.confidence import Trust
from outdraft.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class DraftRequest:
    sequence: Sequence
    k: int  # at most so many tokens
    trust: Trust | None = None  # the draft is to say how sure it is, and to stop where it is not


@dataclass(frozen=True, slots=True)
class Proposal:
    tokens: list[int]  # 0 to k of them
    # (len(tokens), vocab): the distribution each token was drawn from, where the verification
    # rule needs it. None: the proposer is sure of its tokens.
    probs: Tensor | None = None
    match: int = 0  # of a lookup: tokens of the text's end that it found earlier
    grades: Seq[int] = ()  # how sure it is of each token, where the request has a trust


class Observation(NamedTuple):
    """The target's hidden states of one sequence's tokens, without refused drafts: rows `first` to
    `end` of a step's. Not a tensor of their own: to cut one out takes longer than all the rest."""

    sequence: Sequence
    start: int  # position of the first row
    features: Tensor  # (rows of the step, taps * hidden): see RunResult
    first: int
    end: int


class Proposer(Protocol):
    def propose(self, requests: Seq[DraftRequest]) -> list[Proposal]:
        """One proposal per request, in order; an empty one where there is nothing to propose."""
        ...

    def release(self, sequence: Sequence) -> None:
        """The sequence is over: forget it (or learn from it). Harmless when unknown."""
        ...

    def forget(self) -> None:
        """Drop what was learned from earlier sequences; running ones stay valid."""
        ...


@runtime_checkable
class Observer(Protocol):
    """A proposer that reads the target's hidden states."""

    def observe(self, observations: Seq[Observation]) -> None:
        """Called after a step, before its new tokens are appended.

        The positions of a sequence come in order. They may start after 0 (a prefix found in the
        cache) or come again (after a preemption).
        """
        ...

"""The one seam every proposer fits.

A proposer is asked for drafts before a step and told when a sequence is over. It reads
`sequence.tokens`, which only ever grow; it keeps what it needs per sequence under
`sequence.id`, and catches up by itself when it was not asked for a while: speculation may
be switched on and off at any round. Its guesses can cost time but never change a text.
One that also is an `Observer` is shown the target's hidden states after every step, whether it
was asked or not.

`outdraft.testing.contracts.ProposerContract` is the suite that every proposer passes.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from outdraft.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Ask:
    sequence: Sequence
    k: int  # at most so many tokens


@dataclass(frozen=True, slots=True)
class Draft:
    tokens: list[int]  # 0 to k of them
    # (len(tokens), vocab): what each token was drawn from, where the rule asks for it.
    # None: the proposer is sure of its tokens.
    probs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step computed of one sequence, but for drafts that were refused."""

    sequence: Sequence
    start: int  # position of the first row
    features: Tensor  # (n, taps * hidden): see Runner


class Proposer(Protocol):
    def propose(self, asks: Seq[Ask]) -> list[Draft]:
        """One draft per ask, in order; an empty one where there is nothing to propose."""
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

    def observe(self, seen: Seq[Seen]) -> None:
        """Behind a step, before its new tokens are appended. A sequence comes in order of
        positions, but not always from 0 (a beginning found in the cache) nor once only (one
        that was sent back to wait)."""
        ...

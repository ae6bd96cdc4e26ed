"""The one seam every proposer fits.

A proposer is asked for drafts before a step and told when a sequence is over. It reads
`sequence.tokens`, which only ever grow; it keeps what it needs per sequence under
`sequence.id`, and catches up by itself when it was not asked for a while: speculation may
be switched on and off at any round. Its guesses can cost time but never change a text.

`outdraft.testing.contracts.ProposerContract` is the suite that every proposer passes.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

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

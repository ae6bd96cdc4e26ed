"""The protocol of runners: where and how a model is computed.

A runner holds one model and its KV cache. It is given runs (tokens of several sequences at their
positions) and returns rows of logits. How rows are padded or grouped is decided by the runner:
results hold the wanted rows only, in the order of the runs.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from outdraft.engine.models.head import Head


@dataclass(frozen=True, slots=True)
class Run:
    """One sequence's share of a step: tokens at positions start, start+1, …"""

    tokens: Seq[int]
    start: int
    table: Seq[int]  # its blocks, enough for start + len(tokens)
    num_logits: int  # logits are wanted for the last so many tokens
    # Of a head: (len(tokens), hidden), the fused features one position before each token.
    features: Tensor | None = None


@dataclass(frozen=True, slots=True)
class RunResult:
    """R wanted rows, in the order of the runs."""

    logits: Tensor  # (R, vocab) float32
    hidden: Tensor  # (R, hidden): the same rows before the last norm
    # (T, taps * hidden): the stream entering the tapped layers, of every token of every run
    features: Tensor | None = None


class Runner(Protocol):
    vocab_size: int  # of the logits
    min_rows: int  # a step is padded to so many tokens: fewer cost the same

    def run(self, runs: Seq[Run]) -> RunResult:
        """Computes all runs in one batch and writes their keys and values to the cache."""
        ...


class HeadChain(Protocol):
    """One draft token after another for each of several sequences. The head's own output takes the
    place of features."""

    logits: Tensor  # (sequences, vocab) for the next token

    def extend(self, tokens: Seq[int]) -> None:
        """Reads one more token of each sequence."""
        ...


class HeadRunner(Runner, Protocol):
    """Runs a head, whose logits are over a draft vocabulary."""

    head: Head

    def start_chain(self, runs: Seq[Run], num_tokens: int) -> HeadChain:
        """Computes `runs`, one wanted row each, with room for up to `num_tokens` drafts.

        Drafts that the blocks of a sequence have no room for leave no trace in the cache.
        """
        ...

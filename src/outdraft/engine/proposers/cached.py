"""What proposers with a KV cache have in common: blocks by sequence, drafts, how they are drawn."""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch.nn.functional as F
from torch import Tensor, cat

from outdraft.engine.confidence import Trust, grade_of
from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.proposers.proposer import Proposal
from outdraft.engine.sampling import (
    Drawn,
    Row,
    Stream,
    draw,
    draw_surely,
    probabilities,
    processed_logits,
)
from outdraft.engine.sequence import Sequence


@dataclass(slots=True)
class CachedText:
    """What the draft's KV cache holds of one sequence."""

    table: list[int]
    hashes: list[bytes]  # of the full blocks
    num_read: int  # tokens before this one have entries


Text = TypeVar("Text", bound=CachedText)


class CachedProposer(Generic[Text]):
    """A proposer with a KV cache: the texts in it, and their blocks."""

    def __init__(self, pool: BlockPool) -> None:
        self.pool = pool
        self._texts: dict[int, Text] = {}  # by sequence id

    @property
    def tables(self) -> list[list[int]]:
        return [text.table for text in self._texts.values()]

    def num_behind(self, sequence: Sequence) -> int:
        """Tokens of the text that are read before the next draft, its last one included."""
        raise NotImplementedError

    def release(self, sequence: Sequence) -> None:
        text = self._texts.pop(sequence.id, None)
        if text is not None:
            self.pool.release(text.table)

    def forget(self) -> None:
        self.pool.forget()


@dataclass(slots=True)
class GrowingDraft(Generic[Text]):
    """The draft of one sequence as it grows."""

    sequence: Sequence
    text: Text
    k: int
    trust: Trust | None = None
    tokens: list[int] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)  # (1, V) each
    grades: list[int] = field(default_factory=list)
    chance: float = 1.0  # that all tokens are accepted, by their grades

    @property
    def wants_more(self) -> bool:
        if len(self.tokens) >= self.k:
            return False
        return self.trust is None or self.chance >= self.trust.floor

    def add(self, token: int, margin: float | None) -> None:
        self.tokens.append(token)
        if self.trust is not None and margin is not None:
            self.grades.append(grade_of(margin))
            self.chance *= self.trust.chances[self.grades[-1]]

    def proposal(self) -> Proposal:
        probs = cat(self.probs[: self.k]) if self.probs else None
        return Proposal(self.tokens[: self.k], probs, grades=self.grades[: self.k])


class Sampler:
    """Draws the next draft token of several sequences from a draft's logits."""

    def __init__(
        self, vocab_size: int, *, keep_probs: bool, target_ids: Tensor | None = None
    ) -> None:
        """`vocab_size` is the target's. `target_ids`: the target's id of every draft token, where
        the draft has a vocabulary of its own. `keep_probs`: for the rejection rule, which needs
        the distributions, and drafts that have noise of their own."""
        self._vocab_size = vocab_size
        self._target_ids = target_ids
        self._noise_ids = None if target_ids is None else target_ids.int()
        self._keep_probs = keep_probs
        self._stream = Stream.DRAFT if keep_probs else Stream.TOKEN

    def draw(self, drafts: Seq[GrowingDraft[Text]], logits: Tensor) -> None:
        """Appends one token to each: logits (len(drafts), draft vocabulary)."""
        rows = [Row(each.sequence, tuple(each.tokens)) for each in drafts]
        is_graded = any(each.trust is not None for each in drafts)
        if self._target_ids is None:
            drawn, probs = self._draw_shared(rows, logits, is_graded=is_graded)
        else:
            drawn, probs = self._draw_mapped(rows, logits, self._target_ids, is_graded=is_graded)
        for index, (each, token) in enumerate(zip(drafts, drawn.columns.tolist(), strict=True)):
            each.add(token, None if drawn.margins is None else drawn.margins[index])
            if probs is not None:
                each.probs.append(probs[index : index + 1])

    def _draw_shared(
        self, rows: Seq[Row], logits: Tensor, *, is_graded: bool
    ) -> tuple[Drawn, Tensor | None]:
        """Token ids are the target's; either vocabulary may be padded further."""
        processed = processed_logits(logits[:, : self._vocab_size], rows)
        drawn = self._draw(processed, rows, is_graded=is_graded)
        if not self._keep_probs:
            return drawn, None
        probs = probabilities(processed, rows)
        missing = self._vocab_size - probs.shape[1]
        return drawn, F.pad(probs, (0, missing)) if missing else probs

    def _draw_mapped(
        self, rows: Seq[Row], logits: Tensor, target_ids: Tensor, *, is_graded: bool
    ) -> tuple[Drawn, Tensor | None]:
        shape = (len(rows), self._vocab_size)
        if not all(_is_plain(row) for row in rows):
            full = logits.new_full(shape, float("-inf")).index_copy_(1, target_ids, logits)
            processed = processed_logits(full, rows)
            drawn = self._draw(processed, rows, is_graded=is_graded)
            # NaN where every draft token is ruled out.
            probs = probabilities(processed, rows).nan_to_num_(0.0) if self._keep_probs else None
            return drawn, probs
        # Everything can be done within the draft vocabulary.
        processed = processed_logits(logits, rows)
        drawn = self._draw(processed, rows, self._noise_ids, is_graded=is_graded)
        drawn = Drawn(target_ids[drawn.columns], drawn.margins)
        if not self._keep_probs:
            return drawn, None
        probs = probabilities(processed, rows)
        return drawn, probs.new_zeros(shape).index_copy_(1, target_ids, probs)

    def _draw(
        self, processed: Tensor, rows: Seq[Row], ids: Tensor | None = None, *, is_graded: bool
    ) -> Drawn:
        if is_graded:
            return draw_surely(processed, rows, self._stream, ids)
        return Drawn(draw(processed, rows, self._stream, ids))


def _is_plain(row: Row) -> bool:
    """Whether no token is treated differently for being that token."""
    return not (row.params.has_penalties or row.params.logit_bias or row.banned)

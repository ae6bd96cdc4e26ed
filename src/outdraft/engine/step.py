"""One step of the engine: which tokens it computes, and which rows of its results are whose.

Three kinds of rows lie one after another, sequence by sequence:

features  one row for every token that is computed, drafts included
logits    the wanted rows: those of the prompt, where its tokens are scored, then the drawn
          ones
drawn     with drafts d1…dk, k+1 rows: row j is the position of d(j+1), given d1…dj
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from outdraft.engine.outputs import StepStats
from outdraft.engine.proposers.proposer import Observation
from outdraft.engine.runners.runner import Run
from outdraft.engine.sampling import Row
from outdraft.engine.sequence import Sequence

_T = TypeVar("_T")


@dataclass(slots=True)
class Segment:
    """One sequence's tokens in a step: some of its own, then drafts."""

    sequence: Sequence
    num_tokens: int  # of its own
    drafts: list[int] = field(default_factory=list)
    num_accepted: int = 0  # drafts, once they are verified
    proposer: str | None = None  # whose drafts they are
    why: str = ""  # it has this draft, or none, where that was chosen
    start: int = field(init=False)  # position of the first token
    reaches_end: bool = field(init=False)  # the last token is computed: the next one is drawn
    is_round: bool = field(init=False)  # it is not the first token that is drawn
    scores_prompt: bool = field(init=False)

    def __post_init__(self) -> None:
        sequence = self.sequence
        has_output = sequence.num_output_tokens > 0
        self.start = sequence.num_computed
        self.reaches_end = self.num_tokens == sequence.num_uncomputed
        self.is_round = self.reaches_end and has_output
        self.scores_prompt = sequence.params.prompt_logprobs is not None and not has_output

    @property
    def num_computed(self) -> int:
        return self.num_tokens + len(self.drafts)

    @property
    def num_drawn(self) -> int:
        return len(self.drafts) + 1 if self.reaches_end else 0

    @property
    def num_logits(self) -> int:
        return self.num_tokens if self.scores_prompt else self.num_drawn


class Round:
    """The drawn rows of a step: `drafts[i]` proposed for `sequences[i]`, possibly none."""

    def __init__(
        self, sequences: Seq[Sequence], drafts: Seq[Seq[int]], draft_probs: Tensor | None = None
    ) -> None:
        """`draft_probs` (all drafts, V): the distribution of each draft token, if kept."""
        self.drafts = drafts
        self.draft_probs = draft_probs
        self.rows: list[Row] = []
        self._slices: list[slice] = []  # the rows of each sequence
        for sequence, draft in zip(sequences, drafts, strict=True):
            first = len(self.rows)
            self.rows += [Row(sequence, draft[:length]) for length in range(len(draft) + 1)]
            self._slices.append(slice(first, len(self.rows)))

    @property
    def draft_rows(self) -> list[int]:
        """The row that judges each draft token: all but the last one of each sequence."""
        return [row for own in self._slices for row in range(own.start, own.stop - 1)]

    def rows_of(self, index: int) -> slice:
        """The rows of sequence `index`."""
        return self._slices[index]

    def by_sequence(self, values: Seq[_T]) -> list[Seq[_T]]:
        """One value for each row → those of each sequence."""
        return [values[own] for own in self._slices]


class Step:
    """The segments of one batch. Drafts are attached before any other method is called."""

    def __init__(self, segments: Seq[Segment]) -> None:
        self.segments = segments
        self.drawing = [segment for segment in segments if segment.reaches_end]

    def runs(self) -> list[Run]:
        runs = []
        for segment in self.segments:
            start, sequence = segment.start, segment.sequence
            tokens = sequence.tokens[start : start + segment.num_tokens]
            runs.append(Run([*tokens, *segment.drafts], start, sequence.table, segment.num_logits))
        return runs

    def round(self, draft_probs: Tensor | None) -> Round:
        return Round(
            [segment.sequence for segment in self.drawing],
            [tuple(segment.drafts) for segment in self.drawing],
            draft_probs,
        )

    def prompt_logits(self, logits: Tensor) -> Iterator[tuple[Segment, Tensor]]:
        """The rows of every prompt that is scored: (tokens computed - drawn, V)."""
        for segment, first, drawn, _ in self._logit_rows():
            if segment.scores_prompt:
                yield segment, logits[first:drawn]

    def drawn_logits(self, logits: Tensor) -> Tensor:
        """All drawn rows; nothing is copied unless a prompt is scored."""
        if not any(segment.scores_prompt for segment in self.segments):
            return logits
        return torch.cat([logits[drawn:end] for _, _, drawn, end in self._logit_rows()])

    def _logit_rows(self) -> Iterator[tuple[Segment, int, int, int]]:
        """(segment, its first row, its first drawn row, its end)."""
        end = 0
        for segment in self.segments:
            first, end = end, end + segment.num_logits
            yield segment, first, end - segment.num_drawn, end

    def accept(self, emitted: Seq[Seq[int]]) -> None:
        """Notes what verification emitted for each segment that draws: one token of the target's
        after the accepted drafts."""
        for segment, tokens in zip(self.drawing, emitted, strict=True):
            segment.num_accepted = len(tokens) - 1

    def observations(self, features: Tensor) -> list[Observation]:
        """Each sequence's features, without those of refused drafts."""
        observations = []
        row = 0
        for segment in self.segments:
            end = row + segment.num_tokens + segment.num_accepted
            observations.append(Observation(segment.sequence, segment.start, features, row, end))
            row += segment.num_computed
        return observations

    def stats(self, num_emitted: int, max_k: int, seconds: float) -> StepStats:
        rounds = [segment for segment in self.drawing if segment.is_round]
        draft_lengths = [len(segment.drafts) for segment in rounds]
        num_tokens = sum(segment.num_computed for segment in self.segments)
        return StepStats(
            num_sequences=len(self.segments),
            num_tokens=num_tokens,
            num_prompt_tokens=num_tokens - sum(draft_lengths) - len(draft_lengths),
            draft_lengths=draft_lengths,
            num_emitted=num_emitted,
            num_decoded=num_emitted - (len(self.drawing) - len(draft_lengths)),
            max_k=max_k,
            seconds=seconds,
            temperatures=tuple(segment.sequence.params.temperature for segment in rounds),
            mean_context=sum(each.start for each in rounds) / len(rounds) if rounds else 0.0,
        )

"""Runners that compute operation by operation, as torch does by itself."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.models.batch import Batch
from outdraft.engine.models.decoder import Decoder
from outdraft.engine.models.elementwise import Rotation
from outdraft.engine.models.head import FIRST_KEY, Head
from outdraft.engine.runners.batcher import Batcher
from outdraft.engine.runners.runner import Run, RunResult


class EagerRunner:
    """Runs a decoder."""

    def __init__(self, decoder: Decoder, cache: KVCache, taps: Seq[int] = ()) -> None:
        """`taps`: layers whose inputs are returned as features, see Decoder.forward."""
        spec = decoder.spec
        self.vocab_size = spec.vocab_size
        self.min_rows = decoder.min_rows
        self._decoder = decoder
        self._cache = cache
        self._taps = taps
        heads = spec.num_heads, spec.num_kv_heads
        self._batcher = Batcher(cache, *heads, windows=spec.windows, min_rows=self.min_rows)

    @torch.inference_mode()
    def run(self, runs: Seq[Run]) -> RunResult:
        batch = self._batcher.prepare(runs)
        hidden, taps = self._decoder.forward(batch, self._cache, self._taps)
        wanted = hidden.index_select(0, batch.logit_rows)
        count = sum(run.num_logits for run in runs)
        logits = self._decoder.logits(wanted) if count else wanted.new_empty(0, 0)
        features = None
        if taps:
            features = torch.cat(taps, 1)[: sum(len(run.tokens) for run in runs)]
        return RunResult(logits[:count], wanted[:count], features)


class EagerHeadRunner:
    """Runs a head, whose logits are over a draft vocabulary."""

    def __init__(self, head: Head, cache: KVCache) -> None:
        spec = head.spec
        self.vocab_size = spec.draft_vocab_size
        self.min_rows = head.min_rows
        self.head = head
        self.cache = cache
        heads = spec.num_heads, spec.num_kv_heads
        self.batcher = Batcher(
            cache, *heads, windows=(None,), min_rows=self.min_rows, first_key=FIRST_KEY
        )

    @torch.inference_mode()
    def run(self, runs: Seq[Run]) -> RunResult:
        count = sum(run.num_logits for run in runs)
        output = self.forward(runs)
        logits = self.head.logits(output) if count else output.new_empty(0, 0)
        return RunResult(logits[:count], output[:count])

    @torch.inference_mode()
    def start_chain(self, runs: Seq[Run], num_tokens: int) -> EagerHeadChain:
        return EagerHeadChain(self, runs, num_tokens)

    def forward(self, runs: Seq[Run]) -> Tensor:
        """The output (R, hidden) of the wanted rows, then of rows that pad."""
        batch = self.batcher.prepare(runs)
        parts = [run.features for run in runs if run.features is not None]
        features = parts[0] if len(parts) == 1 else torch.cat(parts)
        padding = len(batch.tokens) - len(features)
        if padding > 0:
            features = F.pad(features, (0, 0, 0, padding))
        rotation = self.head.rotation(batch.positions)
        output = self.head.forward(batch, features, self.cache, rotation)
        return output.index_select(0, batch.logit_rows)


class EagerHeadChain:
    """One draft token after another for each of several sequences.

    The head's own output takes the place of features; all positions are prepared at once.
    """

    def __init__(self, runner: EagerHeadRunner, runs: Seq[Run], num_tokens: int) -> None:
        self._runner = runner
        self._num_sequences = len(runs)
        self._hidden = runner.forward(runs)  # (rows, hidden), padding included
        self._steps = iter(self._prepare(runs, num_tokens - 1))
        self.logits = self._wanted_logits()  # (sequences, vocab) for the next token

    @torch.inference_mode()
    def extend(self, tokens: Seq[int]) -> None:
        """Reads one more token of each sequence."""
        runner = self._runner
        batch, rotation = next(self._steps)
        padded = [*tokens, *[0] * (len(batch.tokens) - len(tokens))]
        batch = replace(batch, tokens=torch.tensor(padded).to(self._hidden.device))
        self._hidden = runner.head.forward(batch, self._hidden, runner.cache, rotation)
        self.logits = self._wanted_logits()

    def _wanted_logits(self) -> Tensor:
        return self._runner.head.logits(self._hidden)[: self._num_sequences]

    def _prepare(self, runs: Seq[Run], num_steps: int) -> list[tuple[Batch, Rotation]]:
        """The positions after each run, one step for each."""
        if num_steps < 1:
            return []
        starts = [Run([0], run.start + len(run.tokens), run.table, 1) for run in runs]
        batches = self._runner.batcher.prepare_chain(starts, num_steps)
        positions = torch.cat([batch.positions for batch in batches])
        cos, sin = self._runner.head.rotation(positions)
        rows = len(batches[0].tokens)
        rotations = map(Rotation, cos.split(rows), sin.split(rows))
        return list(zip(batches, rotations, strict=True))

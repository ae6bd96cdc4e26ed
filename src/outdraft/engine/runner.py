"""Runs a step: a list of (sequence, tokens to compute) → tensors → one forward → logits.

The only place that knows where a step is computed. Target and draft each have a runner.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from outdraft.engine.kv_cache import SCRATCH_BLOCK, KVCache
from outdraft.engine.models.attention import MIN_PRODUCT_ROWS
from outdraft.engine.models.batch import Batch, Group
from outdraft.engine.models.decoder import Decoder

# Runs up to this long (single tokens, verification runs) share one group.
_SHORT_RUN = 16


@dataclass(frozen=True, slots=True)
class Run:
    """One sequence's share of a step: tokens at positions start, start+1, …"""

    tokens: Seq[int]
    start: int
    table: Seq[int]  # its blocks, enough for start + len(tokens)
    num_logits: int  # logits are wanted for the last so many tokens


@dataclass(frozen=True, slots=True)
class StepResult:
    logits: Tensor  # (R, vocab) float32: the runs' wanted rows, in order
    hidden: Tensor  # (R, hidden): the same rows before the last norm
    taps: list[Tensor]  # (R, hidden) each: behind the layers asked for


class Runner:
    def __init__(self, decoder: Decoder, cache: KVCache, taps: Seq[int] = ()) -> None:
        self.decoder = decoder
        self.cache = cache
        self._taps = taps
        spec = decoder.spec
        self._windows = sorted(set(spec.windows), key=lambda window: window or 0)
        per_kv = spec.num_heads // spec.num_kv_heads
        # Enough queries per sequence that no attention product is too small (attention.py).
        self._min_queries = -(-MIN_PRODUCT_ROWS // per_kv)

    @torch.inference_mode()
    def run(self, runs: Seq[Run]) -> StepResult:
        batch = self._prepare(runs)
        hidden, taps = self.decoder.forward(batch, self.cache, self._taps)
        wanted = hidden.index_select(0, batch.logit_rows)
        count = sum(run.num_logits for run in runs)
        return StepResult(
            logits=self.decoder.logits(wanted)[:count],
            hidden=wanted[:count],
            taps=[tap.index_select(0, batch.logit_rows)[:count] for tap in taps],
        )

    def _prepare(self, runs: Seq[Run]) -> Batch:
        device, size = self.decoder.device, self.cache.block_size
        tokens: list[int] = []
        positions: list[int] = []
        blocks: list[int] = []
        logit_rows: list[int] = []
        first_rows: list[int] = []  # of each run
        for run in runs:
            first_rows.append(len(tokens))
            tokens.extend(run.tokens)
            end = run.start + len(run.tokens)
            positions.extend(range(run.start, end))
            blocks.extend(run.table[position // size] for position in range(run.start, end))
            logit_rows.extend(range(len(tokens) - run.num_logits, len(tokens)))
        groups, padded = self._groups(runs, first_rows)
        # Where each row's result is among the padded queries of all groups; padding rows
        # (there so that products are not too small) take whatever is first.
        merge = [0] * len(tokens)
        for place, row in padded:
            merge[row] = place
        missing = max(0, self.decoder.min_rows - len(tokens))
        for rows in (tokens, positions, merge):
            rows.extend([0] * missing)
        blocks.extend([SCRATCH_BLOCK] * missing)
        logit_rows.extend([0] * (self.decoder.min_rows - len(logit_rows)))
        table = torch.tensor([tokens, positions, blocks, merge]).to(device)
        return Batch(
            tokens=table[0],
            positions=table[1],
            write_blocks=table[2],
            write_offsets=table[1] % size,
            groups=groups,
            merge=table[3],
            logit_rows=torch.tensor(logit_rows, dtype=torch.long).to(device),
        )

    def _groups(
        self, runs: Seq[Run], first_rows: Seq[int]
    ) -> tuple[tuple[Group, ...], list[tuple[int, int]]]:
        """Groups by length (powers of two), and (padded place, row) of every real query."""
        by_length: dict[int, list[int]] = {}
        for index, run in enumerate(runs):
            length = max(_SHORT_RUN, 1 << (len(run.tokens) - 1).bit_length())
            by_length.setdefault(length, []).append(index)
        groups: list[Group] = []
        padded: list[tuple[int, int]] = []
        offset = 0
        for members in by_length.values():
            chosen = [runs[index] for index in members]
            num_queries = max(self._min_queries, *(len(run.tokens) for run in chosen))
            for place, index in enumerate(members):
                start = offset + place * num_queries
                padded.extend(
                    (start + query, first_rows[index] + query)
                    for query in range(len(runs[index].tokens))
                )
            rows = [
                first_rows[index] + min(query, len(runs[index].tokens) - 1)
                for index in members
                for query in range(num_queries)
            ]
            groups.append(self._group(chosen, num_queries, rows))
            offset += len(members) * num_queries
        return tuple(groups), padded

    def _group(self, runs: Seq[Run], num_queries: int, rows: list[int]) -> Group:
        device, size = self.decoder.device, self.cache.block_size
        counts = [-(-(run.start + len(run.tokens)) // size) for run in runs]
        num_blocks = max(counts)
        blocks = [
            [*run.table[:count], *[SCRATCH_BLOCK] * (num_blocks - count)]
            for run, count in zip(runs, counts, strict=True)
        ]
        consecutive = len(runs) == 1 and all(
            later == earlier + 1 for earlier, later in zip(blocks[0], blocks[0][1:], strict=False)
        )
        last = [run.start + len(run.tokens) - 1 for run in runs]
        starts = torch.tensor([run.start for run in runs]).to(device)
        # (S, Q): the position of every padded query; padding repeats a run's last one.
        at = starts[:, None] + torch.arange(num_queries, device=device)
        at = torch.minimum(at, torch.tensor(last).to(device)[:, None])
        keys = torch.arange(num_blocks * size, device=device)
        return Group(
            num_sequences=len(runs),
            num_queries=num_queries,
            num_blocks=num_blocks,
            rows=torch.tensor(rows).to(device),
            blocks=torch.tensor(blocks).view(-1).to(device),
            first_block=blocks[0][0] if consecutive else None,
            masks={window: _mask(at, keys, window) for window in self._windows},
        )


def _mask(at: Tensor, keys: Tensor, window: int | None) -> Tensor:
    """0 where a query at `at` (S, Q) sees a key (L,), -inf elsewhere: (S, 1, Q, 1, L)."""
    hidden = keys > at[..., None]
    if window is not None:
        hidden |= keys <= at[..., None] - window
    mask = torch.zeros(hidden.shape, device=at.device).masked_fill_(hidden, float("-inf"))
    return mask[:, None, :, None, :]

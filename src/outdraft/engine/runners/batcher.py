"""Runs over one KV cache → the tensors that every layer reads, padded as the kernels need it."""

from collections.abc import Sequence as Seq
from dataclasses import replace

import torch
from torch import Tensor

from outdraft.engine.kv_cache import SCRATCH_BLOCK, KVCache
from outdraft.engine.models.attention import min_queries
from outdraft.engine.models.batch import Batch, Group
from outdraft.engine.runners.runner import Run

# Runs up to this long (single tokens, verification runs) share one group.
_SHORT_RUN = 16


class Batcher:
    def __init__(
        self,
        cache: KVCache,
        num_heads: int,
        num_kv_heads: int,
        *,
        windows: Seq[int | None],
        min_rows: int,
        first_key: int = 0,
    ) -> None:
        """`min_rows`: fewest rows a batch has. Keys before `first_key` are masked for all."""
        self._cache = cache
        self._device = cache.keys[0].device
        self._windows = sorted(set(windows), key=lambda window: window or 0)
        self._min_rows = min_rows
        self._first_key = first_key
        # Where each kv head's blocks begin in the cache, (kv_heads, 1).
        self._heads = torch.arange(num_kv_heads, device=self._device)[:, None] * cache.num_blocks
        self._min_queries = min_queries(num_heads, num_kv_heads)

    def prepare(self, runs: Seq[Run]) -> Batch:
        device, size = self._device, self._cache.block_size
        tokens: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        logit_rows: list[int] = []
        first_rows: list[int] = []  # of each run
        for run in runs:
            first_rows.append(len(tokens))
            tokens.extend(run.tokens)
            for position in range(run.start, run.start + len(run.tokens)):
                positions.append(position)
                slots.append(_slot(run.table, position, size))
            logit_rows.extend(range(len(tokens) - run.num_logits, len(tokens)))
        # Padding rows, which keep products from being too small, write to the scratch block.
        num_rows = max(len(tokens), self._min_rows)
        padding = num_rows - len(tokens)
        tokens.extend([0] * padding)
        positions.extend([0] * padding)
        slots.extend([SCRATCH_BLOCK * size] * padding)
        logit_rows.extend([0] * (self._min_rows - len(logit_rows)))

        groups: list[Group] = []
        merge = [0] * num_rows
        offset = 0
        for members in _by_length(runs):
            chosen = [runs[index] for index in members]
            num_queries = max(self._min_queries, *(len(run.tokens) for run in chosen))
            rows: list[int] = []  # padding repeats a run's last row
            for index in members:
                first, count = first_rows[index], len(runs[index].tokens)
                for query in range(count):
                    merge[first + query] = offset + len(rows) + query
                rows.extend(first + min(query, count - 1) for query in range(num_queries))
            if len(runs) == 1 and num_rows >= num_queries:
                # The padding rows of the step are enough: nothing to rearrange.
                num_queries, rows = num_rows, list(range(num_rows))
                merge = rows
            groups.append(self._group(chosen, num_queries, rows, num_rows))
            offset += len(rows)
        table = torch.tensor([tokens, positions, slots, merge]).to(device)
        return Batch(
            tokens=table[0],
            positions=table[1],
            slots=table[2],
            groups=tuple(groups),
            merge=None if num_rows == 1 or merge == list(range(offset)) else table[3],
            logit_rows=torch.tensor(logit_rows, dtype=torch.long).to(device),
        )

    def prepare_chain(self, runs: Seq[Run], steps: int) -> list[Batch]:
        """`runs` of one token each, then the next position of each, and so on: one batch a step.

        Rows are in the runs' order, and the tokens of `runs` stand for those that come. Positions
        after the end of a table are written to the scratch block.
        """
        size = self._cache.block_size
        runs = [replace(run, table=_extended(run, steps, size)) for run in runs]
        last = self.prepare([replace(run, start=run.start + steps - 1) for run in runs])
        [group] = last.groups
        padding = [SCRATCH_BLOCK * size] * (len(last.tokens) - len(runs))
        slots = [
            [*(_slot(run.table, run.start + step, size) for run in runs), *padding]
            for step in range(steps)
        ]
        later = torch.arange(steps, device=self._device)[:, None]
        starts = torch.tensor([run.start for run in runs]).to(self._device)
        keys = torch.arange(group.num_blocks * size, device=self._device)
        # (steps, S, 1, 1, 1, L): all of a sequence's queries are one and its padding.
        masks = self._mask((starts + later)[..., None], keys, None)
        positions = last.positions - later.flip(0)  # of padding: unused
        return [
            replace(
                last,
                positions=positions[step],
                slots=slot,
                groups=(replace(group, masks={None: masks[step]}),),
            )
            for step, slot in enumerate(torch.tensor(slots).to(self._device))
        ]

    def _group(self, runs: Seq[Run], num_queries: int, rows: list[int], num_rows: int) -> Group:
        device, size = self._device, self._cache.block_size
        counts = [-(-(run.start + len(run.tokens)) // size) for run in runs]
        num_blocks = max(counts)
        blocks = [
            [*run.table[:count], *[SCRATCH_BLOCK] * (num_blocks - count)]
            for run, count in zip(runs, counts, strict=True)
        ]
        first = blocks[0][0]
        consecutive = len(runs) == 1 and blocks[0] == list(range(first, first + num_blocks))
        alone = num_rows == 1  # nothing to choose from: attend repeats the row
        starts = [run.start for run in runs]
        lasts = [run.start + len(run.tokens) - 1 for run in runs]
        ends = torch.tensor([starts, lasts]).to(device)[..., None]  # (2, S, 1)
        # (S, Q): the position of every query; padding sees what its run's last one sees.
        at = torch.minimum(ends[0] + torch.arange(num_queries, device=device), ends[1])
        keys = torch.arange(num_blocks * size, device=device)
        return Group(
            num_sequences=len(runs),
            num_queries=num_queries,
            num_blocks=num_blocks,
            rows=None if alone or rows == list(range(num_rows)) else torch.tensor(rows).to(device),
            blocks=(torch.tensor(blocks).to(device)[:, None] + self._heads).view(-1),
            first_block=first if consecutive else None,
            masks={window: self._mask(at, keys, window) for window in self._windows},
        )

    def _mask(self, at: Tensor, keys: Tensor, window: int | None) -> Tensor:
        """0 where a query at `at` (…, Q) sees a key (L,), -inf elsewhere: (…, 1, Q, 1, L)."""
        hidden = keys > at[..., None]
        if window is not None:
            hidden |= keys <= at[..., None] - window
        if self._first_key:
            hidden |= keys < self._first_key
        mask = torch.zeros(hidden.shape, device=at.device).masked_fill_(hidden, float("-inf"))
        return mask[..., None, :, None, :]


def _extended(run: Run, steps: int, size: int) -> Seq[int]:
    """The run's table with scratch blocks where it has none for so many positions."""
    missing = -(-(run.start + steps) // size) - len(run.table)
    return [*run.table, *[SCRATCH_BLOCK] * missing] if missing > 0 else run.table


def _slot(table: Seq[int], position: int, size: int) -> int:
    """Where a position's keys and values go."""
    return table[position // size] * size + position % size


def _by_length(runs: Seq[Run]) -> list[list[int]]:
    """Which runs are padded to one length: all short ones, then by powers of two."""
    members: dict[int, list[int]] = {}
    for index, run in enumerate(runs):
        length = max(_SHORT_RUN, 1 << (len(run.tokens) - 1).bit_length())
        members.setdefault(length, []).append(index)
    return list(members.values())

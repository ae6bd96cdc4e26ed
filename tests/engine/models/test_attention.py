"""Attention block by block is plain softmax attention, and knows nothing of its neighbours."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.loading import BLOCK_SIZE
from outdraft.engine.models.attention import attend_batch
from outdraft.engine.models.batch import Batch
from outdraft.engine.runners.eager import EagerRunner
from outdraft.engine.runners.runner import Run

DIM = 16
LENGTHS = [3, 64, 65, 130, 250, 500]  # tokens in the cache, one sequence each
HEADS = [(4, 4), (4, 2), (6, 2), (8, 1), (9, 3)]  # (query heads, kv heads)


class OnlyAttention:
    """A decoder that is one attention and nothing else: a token's id is its query's row.

    Through a real Runner, so that groups and padding are those of a real step.
    """

    def __init__(self, heads: int, kv_heads: int, window: int | None) -> None:
        self.spec = SimpleNamespace(
            num_heads=heads, num_kv_heads=kv_heads, windows=[window], vocab_size=0
        )
        self.device, self.dtype, self.min_rows = torch.device("cpu"), torch.float32, 1
        self.window = window
        generator = torch.Generator().manual_seed(5)
        rows = sum(LENGTHS)
        self.queries = torch.randn(rows, heads, DIM, generator=generator)
        self.keys = torch.randn(rows, kv_heads, DIM, generator=generator)
        self.values = torch.randn(rows, kv_heads, DIM, generator=generator)

    def forward(self, batch: Batch, cache: KVCache, taps: object) -> tuple[Tensor, list[Tensor]]:
        cache.write(0, batch.slots, self.keys[batch.tokens], self.values[batch.tokens])
        queries = self.queries[batch.tokens]
        return attend_batch(queries, cache.keys[0], cache.values[0], batch, self.window), []

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden

    def reference(self, first: int, length: int) -> Tensor:
        """Plain causal softmax attention over rows first … first+length, in float64."""
        part = slice(first, first + length)
        per_kv = self.spec.num_heads // self.spec.num_kv_heads
        queries = self.queries[part].double()
        keys = self.keys[part].double().repeat_interleave(per_kv, 1)
        values = self.values[part].double().repeat_interleave(per_kv, 1)
        scores = torch.einsum("qhd,khd->hqk", queries, keys)
        at = torch.arange(length)
        hidden = at[None, :] > at[:, None]
        if self.window is not None:
            hidden |= at[None, :] <= at[:, None] - self.window
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)


class Texts:
    """Sequences of LENGTHS, laid out in a cache; `run` computes the last tokens of some."""

    def __init__(self, decoder: OnlyAttention, *, scattered: bool = False) -> None:
        num_blocks = sum(-(-length // BLOCK_SIZE) for length in LENGTHS) + 1
        cache = KVCache(
            1, num_blocks, BLOCK_SIZE, decoder.spec.num_kv_heads, DIM, torch.float32, decoder.device
        )
        # What nobody owns may hold anything finite: it must not shine through.
        cache.keys[0].fill_(11.0)
        cache.values[0].fill_(-7.0)
        self.runner = EagerRunner(decoder, cache)  # type: ignore[arg-type]
        order = list(range(1, num_blocks))
        if scattered:
            order = order[::2] + order[1::2]
        self.firsts = [sum(LENGTHS[:index]) for index in range(len(LENGTHS))]
        self.tables = []
        for length in LENGTHS:
            count = -(-length // BLOCK_SIZE)
            self.tables.append(order[:count])
            order = order[count:]
        for index, length in enumerate(LENGTHS):
            self.run([(index, length)])

    def run(self, wanted: list[tuple[int, int]]) -> list[Tensor]:
        """wanted: (which text, how many of its last tokens) → their results."""
        runs = []
        for index, count in wanted:
            start = LENGTHS[index] - count
            first = self.firsts[index] + start
            runs.append(Run(range(first, first + count), start, self.tables[index], count))
        return list(self.runner.run(runs).hidden.split([count for _, count in wanted]))


@pytest.mark.parametrize("window", [None, 24, 100], ids=lambda w: f"window {w}")
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_equals_plain_attention(heads: int, kv_heads: int, window: int | None) -> None:
    decoder = OnlyAttention(heads, kv_heads, window)
    for scattered in (False, True):
        texts = Texts(decoder, scattered=scattered)
        results = texts.run([(index, length) for index, length in enumerate(LENGTHS)])
        for first, length, got in zip(texts.firsts, LENGTHS, results, strict=True):
            assert float((got.double() - decoder.reference(first, length)).abs().max()) < 1e-5


@pytest.mark.parametrize("window", [None, 24], ids=lambda w: f"window {w}")
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_a_row_is_the_same_alone_and_in_any_company(
    heads: int, kv_heads: int, window: int | None
) -> None:
    texts = Texts(OnlyAttention(heads, kv_heads, window))
    shapes = [[1] * 6, [3, 1, 6, 2, 9, 4], [2, 16, 17, 1, 40, 8], [3, 64, 65, 130, 250, 500]]
    alone = [
        torch.cat([texts.run([(index, count)])[0][:1] for count in range(min(9, length), 0, -1)])
        for index, length in enumerate(LENGTHS)
    ]  # the last nine rows of each text, every one as the first row of a run of its own length
    for shape in shapes:
        for company in ([5, 0, 3, 1, 4, 2], [0, 1], [0, 5], [1, 2, 3]):
            results = texts.run([(index, shape[index]) for index in company])
            for index, got in zip(company, results, strict=True):
                count = min(len(got), len(alone[index]))
                assert torch.equal(got[-count:], alone[index][-count:]), (shape, company, index)


def test_scattered_blocks_change_nothing() -> None:
    decoder = OnlyAttention(4, 2, None)
    together, scattered = Texts(decoder), Texts(decoder, scattered=True)
    for index in range(len(LENGTHS)):
        assert torch.equal(*(texts.run([(index, 2)])[0] for texts in (together, scattered)))

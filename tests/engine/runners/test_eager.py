"""A step's rows do not know each other: any mixture gives each run what it gets alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.loading import LoadedModel
from outdraft.engine.runners.batcher import Batcher
from outdraft.engine.runners.eager import EagerRunner
from outdraft.engine.runners.runner import Run
from outdraft.testing.tiny_models import FAMILIES, tiny_model
from tests.engine.conftest import Load

LENGTHS = [400, 130, 70, 65, 64, 3]
# Per sequence, how many of its last tokens are in the step: a prefill chunk, single tokens
# and verification runs of 1 + k.
MIXTURES = [
    [343, 1, 9, 2, 1, 3],
    [1, 1, 1, 1, 1, 1],
    [5, 4, 3, 2, 9, 2],
    [400, 130, 70, 65, 64, 3],
    [33, 17, 16, 2, 64, 1],
]
# Real extents make oneDNN and the matrix library take the paths they take in use.
SHAPES = {
    "tiny": {},
    "odd": {"hidden": 80, "heads": 6, "kv_heads": 3, "head_dim": 24, "intermediate": 208},
    "one kv head": {"hidden": 96, "heads": 6, "kv_heads": 1, "head_dim": 32},
    "wide": {"hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "intermediate": 1536},
}


def cache_of(model: LoadedModel) -> KVCache:
    spec, decoder = model.spec, model.decoder
    return KVCache(
        spec.num_layers, 64, 16, spec.num_kv_heads, spec.head_dim, decoder.dtype, decoder.device
    )


def batcher_of(model: LoadedModel, cache: KVCache, **options: int) -> Batcher:
    spec = model.spec
    return Batcher(cache, spec.num_heads, spec.num_kv_heads, windows=(None,), **options)


class Texts:
    """Random sequences with blocks of their own; `rows` computes the last tokens of some."""

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        draw = Random(3)
        self.tokens = [
            [draw.randrange(model.spec.vocab_size) for _ in range(length)] for length in LENGTHS
        ]
        self.tables: list[list[int]] = [[] for _ in LENGTHS]
        for table, length in zip(self.tables, LENGTHS, strict=True):
            assert model.pool.grow(table, length)

    def rows(self, counts: list[int], which: list[int]) -> list[Tensor]:
        runs = []
        for index in which:
            tokens, count = self.tokens[index], counts[index]
            start = len(tokens) - count
            runs.append(Run(tokens[start:], start, self.tables[index], num_logits=count))
        return list(self.model.runner.run(runs).logits.split([counts[i] for i in which]))


def check_company(model: LoadedModel) -> None:
    texts = Texts(model)
    everyone = list(range(len(LENGTHS)))
    # In pieces of eight: what every mixture has to reproduce.
    expected = []
    for index, length in enumerate(LENGTHS):
        pieces = []
        for start in range(0, length, 8):
            tokens = texts.tokens[index][start : start + 8]
            run = Run(tokens, start, texts.tables[index], num_logits=len(tokens))
            pieces.append(model.runner.run([run]).logits)
        expected.append(torch.cat(pieces))
    for counts in MIXTURES:
        for which in (everyone, everyone[::-1], [0, 2], [4], [5], [1, 5, 3]):
            for index, got in zip(which, texts.rows(counts, which), strict=True):
                assert torch.equal(got, expected[index][-counts[index] :]), (counts, which, index)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_in_any_company(family: str, tmp_path: Path, load: Load) -> None:
    check_company(load(tiny_model(tmp_path / family, family)))


@pytest.mark.parametrize(
    ("shape", "threads"),
    [
        # A wide model takes seconds, and two numbers of threads show most.
        pytest.param(shape, threads, marks=pytest.mark.slow)
        if shape == "wide" and threads in (2, 3)
        else (shape, threads)
        for shape in SHAPES
        for threads in (1, 2, 3, 7)
    ],
)
def test_any_extents_and_threads(
    shape: str, threads: int, tmp_path: Path, load: Load, set_threads: Callable[[int], None]
) -> None:
    """Work split over threads in the middle of a row must not show either."""
    set_threads(threads)
    check_company(load(tiny_model(tmp_path / "model", "qwen3", **SHAPES[shape])))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_any_precision(quantization: str, dtype: str, tmp_path: Path, load: Load) -> None:
    check_company(load(tiny_model(tmp_path / "model", "llama"), dtype, quantization))


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("shape", ["one kv head", "wide"])
def test_a_lone_row_of_packed_weights(
    shape: str, quantization: str, tmp_path: Path, load: Load
) -> None:
    """Their steps are not padded: one token is one row, and attention repeats it if need be."""
    model = load(tiny_model(tmp_path, "llama", **SHAPES[shape]), "float32", quantization)
    assert model.runner.min_rows == 1
    check_company(model)


def test_features_are_what_enters_the_tapped_layers(tmp_path: Path, load: Load) -> None:
    model = load(tiny_model(tmp_path / "model", "llama"))
    decoder, size = model.decoder, model.spec.hidden_size
    runner = EagerRunner(decoder, cache_of(model), taps=[2, 0, 1])
    result = runner.run([Run([5, 6, 7], 0, [1], num_logits=2), Run([8], 0, [2], num_logits=1)])
    assert result.logits.shape == (3, model.spec.vocab_size)
    assert result.hidden.shape == (3, size)
    assert result.features is not None
    first, second, third = result.features.split(size, 1)  # in order of layers, all tokens
    assert torch.equal(first, decoder.embedding.rows(torch.tensor([5, 6, 7, 8])))
    assert not torch.equal(second, third)
    assert torch.equal(third[1:], result.hidden)  # what leaves the last layer
    assert model.runner.run([Run([5], 0, [1], num_logits=1)]).features is None


@pytest.mark.parametrize("quantization", ["none", "int8"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_chain_is_its_steps_one_by_one(
    count: int, quantization: str, tmp_path: Path, load: Load
) -> None:
    model = load(tiny_model(tmp_path / "model", "llama"), quantization=quantization)
    cache, size = cache_of(model), model.pool.block_size
    batcher = batcher_of(model, cache, min_rows=model.decoder.min_rows)
    tables = [[1 + 3 * index, 3 + 3 * index, 2 + 3 * index] for index in range(count)]
    runs = [Run([7], size - 2 + index, tables[index], 1) for index in range(count)]
    chain = batcher.prepare_chain(runs, 5)
    assert len(chain) == 5
    for step, batch in enumerate(chain):
        one = batcher.prepare([replace(run, start=run.start + step) for run in runs])
        assert torch.equal(batch.slots, one.slots)
        assert torch.equal(batch.positions[:count], one.positions[:count])
        with torch.inference_mode():
            mine, _ = model.decoder.forward(batch, cache)
            expected, _ = model.decoder.forward(one, cache)
        assert torch.equal(mine[:count], expected[:count])


def test_keys_before_the_first_are_never_seen(tmp_path: Path, load: Load) -> None:
    model = load(tiny_model(tmp_path / "model", "llama"))
    batcher = batcher_of(model, cache_of(model), min_rows=1, first_key=2)
    [group] = batcher.prepare([Run([5, 6, 7], 2, [1], num_logits=1)]).groups
    seen = (group.masks[None][0, 0, :, 0] == 0).int().tolist()
    assert [row[:6] for row in seen] == [[0, 0, 1, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 1, 1, 1, 0]]


def test_a_run_that_wants_no_logits_gets_none(tmp_path: Path, load: Load) -> None:
    model = load(tiny_model(tmp_path / "model", "llama"))
    assert model.runner.run([Run([5, 6, 7], 0, [1], num_logits=0)]).logits.shape[0] == 0

"""Compiled steps are the eager ones, but for rounding, and keep their promises about bits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.loading import LoadedModel
from outdraft.engine.models.embedding import AnyEmbedding
from outdraft.engine.models.head import Head, load_head
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.engine.native.library import library
from outdraft.engine.runners.compiled import CompiledHeadRunner, CompiledRunner, can_compile
from outdraft.engine.runners.eager import EagerHeadRunner, EagerRunner
from outdraft.engine.runners.runner import Run
from outdraft.modelspec import read_head
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import FAMILIES, tiny_model
from tests.engine.conftest import Load
from tests.engine.models.heads import PlainHead
from tests.engine.runners.test_eager import cache_of

pytestmark = pytest.mark.skipif(library() is None, reason="the library is not compiled here")

WIDE = {"hidden": 96, "heads": 6, "kv_heads": 3, "head_dim": 32, "intermediate": 224}
TOKENS = [17 * i % 300 + 20 for i in range(60)]


def wide(folder: Path, load: Load, family: str = "llama", *args: str) -> LoadedModel:
    model = load(tiny_model(folder / "model", family, **WIDE), *args)
    assert isinstance(model.runner, CompiledRunner)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_the_eager_runner(family: str, tmp_path: Path, load: Load) -> None:
    model = wide(tmp_path, load, family)
    eager = EagerRunner(model.decoder, cache_of(model))
    runs = [Run(TOKENS, 0, [1, 2, 3, 4], 60), Run(TOKENS[5:9], 0, [5], 2)]
    mine, other = model.runner.run(runs), eager.run(runs)
    assert torch.allclose(mine.logits, other.logits, atol=1e-4)
    assert torch.allclose(mine.hidden, other.hidden, atol=1e-4)
    later = [Run(TOKENS[:3], 60, [1, 2, 3, 4], 3), Run([9], 4, [5], 1)]
    assert torch.allclose(model.runner.run(later).logits, eager.run(later).logits, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_every_precision_is_near_the_eager_runner(
    quantization: str, dtype: str, tmp_path: Path, load: Load
) -> None:
    model = wide(tmp_path, load, "llama", dtype, quantization)
    eager = EagerRunner(model.decoder, cache_of(model))
    runs = [Run(TOKENS, 0, [1, 2, 3, 4], 60)]
    both = torch.stack([each.run(runs).logits.flatten() for each in (model.runner, eager)])
    assert float(torch.corrcoef(both)[0, 1]) > 0.99


def test_features_are_what_enters_the_tapped_layers(tmp_path: Path, load: Load) -> None:
    model = wide(tmp_path, load)
    size = model.spec.hidden_size
    runner = CompiledRunner(model.decoder, cache_of(model), taps=[2, 0, 1])
    result = runner.run([Run([5, 6, 7], 0, [1], num_logits=2), Run([8], 0, [2], num_logits=1)])
    assert result.features is not None
    first, second, third = result.features.split(size, 1)
    assert torch.equal(first, model.decoder.embedding.rows(torch.tensor([5, 6, 7, 8])))
    assert not torch.equal(second, third)
    assert torch.equal(third[1:], result.hidden)


def test_no_logits_are_computed_where_none_are_wanted(tmp_path: Path, load: Load) -> None:
    result = wide(tmp_path, load).runner.run([Run([5, 6, 7], 0, [1], num_logits=0)])
    assert result.logits.shape[0] == result.hidden.shape[0] == 0


def test_a_child_process_computes_with_threads_of_its_own(
    tmp_path: Path, load: Load, set_threads: object
) -> None:
    assert callable(set_threads)
    set_threads(2)
    model = wide(tmp_path, load)
    run = Run(TOKENS, 0, [1, 2, 3, 4], 1)
    before = model.runner.run([run]).logits
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(model.runner.run([run]).logits, before) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ------------------------------------------------------------------ heads


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("compiled") / "target", "llama", **WIDE)


def loaded(folder: Path, embedding: AnyEmbedding, quantization: str = "none") -> Head:
    weights = SafetensorsWeights(folder)
    head = load_head(read_head(folder), weights, embedding, quantization=quantization)
    assert can_compile(head)
    return head


def head_cache(head: Head) -> KVCache:
    spec = head.spec
    return KVCache(1, 16, 16, spec.num_kv_heads, spec.head_dim, head.dtype, head.device)


VARIANTS = {
    "usual": {},
    "norm before residual": {"norm_before_residual": True},
    "own embedding": {"own_embedding": True},
    "full vocabulary": {"full_vocab": True},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_plain_head(variant: str, target: Path, load: Load, tmp_path: Path) -> None:
    embedding = load(target).decoder.embedding
    folder = tiny_head(tmp_path, target, fitted=False, **VARIANTS[variant])
    head, plain = loaded(folder, embedding), PlainHead(folder, embedding)
    hidden = torch.randn(len(TOKENS), 96, generator=torch.Generator().manual_seed(1))
    run = Run(TOKENS, 1, [3, 1, 2, 4], num_logits=len(TOKENS), features=hidden)
    got = CompiledHeadRunner(head, head_cache(head)).run([run])
    expected = plain.states(TOKENS, hidden)
    assert torch.allclose(got.hidden, expected, atol=1e-4)
    assert torch.allclose(got.logits, plain.logits(expected), atol=1e-3)


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_a_chain_is_the_eager_chain(
    quantization: str, target: Path, load: Load, tmp_path: Path
) -> None:
    embedding = load(target).decoder.embedding
    head = loaded(tiny_head(tmp_path, target, fitted=False), embedding, quantization)
    hidden = torch.randn(30, 96, generator=torch.Generator().manual_seed(1))
    runs = [
        Run(TOKENS[:20], 1, [3, 1], 1, features=hidden[:20]),
        Run(TOKENS[20:30], 1, [4], 1, features=hidden[20:]),  # ends with its only block
    ]
    mine = CompiledHeadRunner(head, head_cache(head)).start_chain(runs, 8)
    other = EagerHeadRunner(head, head_cache(head)).start_chain(runs, 8)
    for step in range(7):
        near = torch.nn.functional.cosine_similarity(mine.logits, other.logits).min()
        assert near > (0.99999 if quantization == "none" else 0.99), step
        drawn = other.logits.argmax(1).tolist()
        mine.extend(drawn)
        other.extend(drawn)


def test_a_matrix_that_tokens_come_in_and_go_out_by_is_held_once(
    tmp_path: Path, load: Load
) -> None:
    tied = load(tiny_model(tmp_path / "tied", "smollm2")).decoder
    apart = load(tiny_model(tmp_path / "apart", "llama")).decoder
    assert tied.spec.tie_embeddings
    assert tied.embedding is tied.head
    assert not apart.spec.tie_embeddings
    assert apart.embedding is not apart.head

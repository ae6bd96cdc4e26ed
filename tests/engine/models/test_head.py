"""The head's arithmetic against a plain one, and what is refused when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.models.embedding import AnyEmbedding
from outdraft.engine.models.head import Head, load_head
from outdraft.engine.models.weights import SafetensorsWeights
from outdraft.engine.runners.eager import EagerHeadRunner
from outdraft.engine.runners.runner import Run
from outdraft.errors import CorruptFileError
from outdraft.modelspec import read_head
from outdraft.testing.tiny_heads import LAYOUTS, tiny_head
from outdraft.testing.tiny_models import tiny_model
from tests.engine.conftest import Load
from tests.engine.models.heads import PlainHead

TOKENS = [17 * i % 300 + 20 for i in range(40)]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("head") / "target", "llama")


@pytest.fixture(scope="module")
def embedding(target: Path, load: Load) -> AnyEmbedding:
    return load(target).decoder.embedding


def loaded(folder: Path, embedding: AnyEmbedding, quantization: str = "none") -> Head:
    weights = SafetensorsWeights(folder)
    return load_head(read_head(folder), weights, embedding, quantization=quantization)


def states(head: Head, tokens: list[int], hidden: torch.Tensor) -> torch.Tensor:
    """All entries of one text in one batch, from place 1 on as the proposer has them."""
    spec = head.spec
    cache = KVCache(1, 8, 16, spec.num_kv_heads, spec.head_dim, head.dtype, head.device)
    run = Run(tokens, 1, [3, 1, 2], num_logits=len(tokens), features=hidden)
    return EagerHeadRunner(head, cache).run([run]).hidden


VARIANTS = {
    "usual": {},
    "norm before residual": {"norm_before_residual": True},
    "own embedding": {"own_embedding": True},
    "full vocabulary": {"full_vocab": True},
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_the_plain_head(
    variant: str, layout: str, target: Path, embedding: AnyEmbedding, tmp_path: Path
) -> None:
    folder = tiny_head(tmp_path, target, fitted=False, layout=layout, **VARIANTS[variant])
    head, plain = loaded(folder, embedding), PlainHead(folder, embedding)
    features = torch.randn(len(TOKENS), 3 * 64, generator=torch.Generator().manual_seed(1))
    fused = head.fuse(features)
    assert torch.allclose(fused, features @ plain.weights["fc.weight"].T, atol=1e-4)
    got, expected = states(head, TOKENS, fused), plain.states(TOKENS, fused)
    assert torch.allclose(got, expected, atol=1e-4)
    assert torch.allclose(head.logits(got), plain.logits(expected), atol=1e-3)
    assert torch.equal(head.targets, plain.targets)
    assert len(head.targets) == (384 if variant == "full vocabulary" else 288)


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_packed_weights_are_near(
    quantization: str, target: Path, embedding: AnyEmbedding, tmp_path: Path
) -> None:
    folder = tiny_head(tmp_path, target, fitted=False)
    exact, packed = loaded(folder, embedding), loaded(folder, embedding, quantization)
    assert packed.min_rows == 1
    fused = exact.fuse(torch.randn(len(TOKENS), 3 * 64))
    one, other = states(exact, TOKENS, fused), states(packed, TOKENS, fused)
    near = torch.nn.functional.cosine_similarity(one, other).min()
    assert (0.98 if quantization == "int8" else 0.9) < near < 0.999999


@pytest.mark.parametrize("count", [1, 3, 6])
def test_few_rows_are_fused_like_many(
    count: int, target: Path, embedding: AnyEmbedding, tmp_path: Path
) -> None:
    head = loaded(tiny_head(tmp_path, target, fitted=False), embedding)
    features = torch.randn(8, 3 * 64)
    assert torch.equal(head.fuse(features[:count]), head.fuse(features)[:count])


@pytest.mark.parametrize(("change", "word"), [(500, "outside the vocabulary"), (1, "two draft")])
def test_a_mapping_that_leads_astray_is_refused(
    change: int, word: str, target: Path, embedding: AnyEmbedding, tmp_path: Path
) -> None:
    folder = tiny_head(tmp_path, target, fitted=False)
    tensors = load_file(folder / "model.safetensors")
    tensors["d2t"][0] += change
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CorruptFileError, match=word):
        loaded(folder, embedding)

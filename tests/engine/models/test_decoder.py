"""Our logits are transformers' logits: every family, every GGUF type, however the text is fed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from outdraft.engine.loading import LoadedModel
from outdraft.engine.models.decoder import Decoder
from outdraft.engine.models.linear import STEADY_MIN_ROWS, SteadyProduct
from outdraft.engine.runners.runner import Run
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.testing.tiny_models import FAMILIES, GGUF_QUANTS, tiny_gguf, tiny_model
from tests.engine.conftest import Load

LENGTH = 200  # many blocks, and many times mistral's window of 24
FEEDS = {
    "whole": [LENGTH],
    "chunks": [7, 64, 1, 100, 28],
    "single tokens": [1] * LENGTH,
}
MAX_ERROR = 1e-4
HEAD_DIMS = {"qwen2": 16, "qwen3": 128}


def some_tokens(vocab_size: int, length: int = LENGTH) -> list[int]:
    generator = torch.Generator().manual_seed(7)
    return torch.randint(3, vocab_size, (length,), generator=generator).tolist()


def our_logits(model: LoadedModel, tokens: list[int], feed: list[int]) -> Tensor:
    """(tokens, vocab), computed in pieces of the sizes in `feed`."""
    table: list[int] = []
    assert model.pool.grow(table, len(tokens))
    pieces = []
    start = 0
    for size in feed:
        run = Run(tokens[start : start + size], start, table, num_logits=size)
        pieces.append(model.runner.run([run]).logits)
        start += size
    model.pool.release(table)
    return torch.cat(pieces)


@torch.inference_mode()
def reference_logits(path: Path, tokens: list[int], **options: Any) -> Tensor:
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, attn_implementation="eager", **options
    )
    logits: Tensor = reference(torch.tensor([tokens])).logits[0]
    return logits


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("decoder") / request.param, request.param)


@pytest.fixture(scope="module")
def expected(folder: Path) -> Tensor:
    return reference_logits(folder, some_tokens(384))


@pytest.mark.parametrize("feed", FEEDS.values(), ids=FEEDS)
def test_logits_equal_transformers(
    folder: Path, expected: Tensor, load: Load, feed: list[int]
) -> None:
    got = our_logits(load(folder), some_tokens(384), feed)
    assert got.dtype == torch.float32
    assert float((got - expected).abs().max()) <= MAX_ERROR


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_bfloat16_and_packed_weights_are_near(
    folder: Path, expected: Tensor, load: Load, quantization: str
) -> None:
    got = our_logits(load(folder, "bfloat16", quantization), some_tokens(384), [LENGTH])
    both = torch.stack([got.flatten(), expected.flatten()])
    # Tiny models are narrow, so little of the rounding averages out; still: the same model.
    assert (
        float(torch.corrcoef(both)[0, 1]) > {"none": 0.999, "int8": 0.99, "int4": 0.6}[quantization]
    )


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_wider_model_with_odd_extents(family: str, tmp_path: Path, load: Load) -> None:
    """No size is a multiple of a vector's width, and one kv head serves all."""
    path = tiny_model(
        tmp_path / family, family, layers=3, hidden=72, heads=6, kv_heads=1, head_dim=20,
        intermediate=100, vocab=389,
    )  # fmt: skip
    tokens = some_tokens(389)
    got = our_logits(load(path), tokens, FEEDS["chunks"])
    assert float((got - reference_logits(path, tokens)).abs().max()) <= MAX_ERROR


@pytest.mark.parametrize("name", ["qkv", "output", "gate_up", "down", "head"])
def test_steps_have_the_rows_that_the_neediest_product_needs(
    name: str, tmp_path: Path, load: Load
) -> None:
    """One shape's kernel may be steady from 4 rows on where all others are from 1."""
    decoder = load(tiny_model(tmp_path, "llama"), "float32", "int8").decoder
    assert decoder.min_rows == 1
    needy = SteadyProduct(torch.zeros(48, 32), None)
    needy.min_rows = STEADY_MIN_ROWS
    layers, head = list(decoder.layers), decoder.head
    if name == "head":
        head = needy
    else:
        layers[-1] = replace(layers[-1], **{name: needy})
    mixed = Decoder(decoder.spec, decoder.embedding, layers, decoder.norm, head)
    assert mixed.min_rows == STEADY_MIN_ROWS


def test_shards_are_one_model(tmp_path: Path, load: Load) -> None:
    whole = tiny_model(tmp_path / "whole", "llama3")
    sharded = tiny_model(tmp_path / "sharded", "llama3", shards=3)
    first, second = (our_logits(load(p), some_tokens(384), [LENGTH]) for p in (whole, sharded))
    assert torch.equal(first, second)


@pytest.mark.parametrize("quant", GGUF_QUANTS)
def test_every_gguf_type_equals_transformers(quant: str, tmp_path: Path, load: Load) -> None:
    path = tiny_gguf(tmp_path / f"{quant}.gguf", quant=quant)
    tokens = some_tokens(384, 90)
    got = our_logits(load(path), tokens, [90])
    expected = reference_logits(tmp_path, tokens, gguf_file=path.name)
    assert float((got - expected).abs().max()) <= MAX_ERROR


@pytest.mark.parametrize("family", HEAD_DIMS)
def test_gguf_of_other_families_equals_transformers(
    family: str, tmp_path: Path, load: Load
) -> None:
    # transformers overlooks a GGUF's own head size for qwen3 and takes 128.
    path = tiny_gguf(
        tmp_path / "model.gguf", quant="Q8_0", family=family, head_dim=HEAD_DIMS[family]
    )
    tokens = some_tokens(384, 90)
    got = our_logits(load(path), tokens, [90])
    expected = reference_logits(tmp_path, tokens, gguf_file=path.name)
    assert float((got - expected).abs().max()) <= MAX_ERROR


@pytest.mark.slow
@pytest.mark.model
def test_smollm2_equals_transformers(smollm2_path: Path, load: Load) -> None:
    """On text. On random tokens the two differ by 1.4e-4, of logits up to 34, while each is
    within 1e-4 of float64 (benchmarks/accuracy.py): thirty layers of rounding, two ways."""
    text = "The river runs from the hills to the sea, past mills, bridges and small towns. " * 9
    tokens = load_tokenizer(smollm2_path).encode(text)[:150]
    assert len(tokens) == 150
    expected = reference_logits(smollm2_path.parent, tokens, gguf_file=smollm2_path.name)
    model = load(smollm2_path, megabytes=64)
    for feed in ([150], [64, 1, 5, 80]):
        assert float((our_logits(model, tokens, feed) - expected).abs().max()) <= MAX_ERROR

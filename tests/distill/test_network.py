"""The network against the engine's own decoder, for every family."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outdraft.distill.target import load_network
from outdraft.engine.assemble import load_engine
from outdraft.engine.sequence import SamplingParams
from outdraft.errors import CorruptFileError
from outdraft.modelspec import read_modelspec
from outdraft.speculation import OFF
from outdraft.testing.tiny_models import FAMILIES, tiny_gguf, tiny_model

PROMPT = [40, 41, 45, 47, 43, 42, 44, 46, 41, 40] * 4  # longer than mistral's window of 24


def greedy_text(path: Path, count: int) -> list[int]:
    engine = load_engine(str(path), OFF, kv_cache_bytes=1 << 20)
    [done] = engine.generate([PROMPT], SamplingParams(max_tokens=count, ignore_eos=True))
    return done.tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_texts_are_predicted_as_the_engine_writes_them(tmp_path: Path, family: str) -> None:
    path = tiny_model(tmp_path / family, family, layers=3)
    network = load_network(
        path, read_modelspec(path), dtype=torch.float32, device=torch.device("cpu")
    )
    written = greedy_text(path, 12)
    hidden, _ = network(torch.tensor([PROMPT + written]))
    guessed = network.logits(hidden)[0, len(PROMPT) - 1 : -1].argmax(1)
    assert guessed.tolist() == written


@pytest.mark.parametrize("family", ["mistral", "qwen3"])
def test_a_step_over_the_cache_is_the_whole_text(tmp_path: Path, family: str) -> None:
    path = tiny_model(tmp_path / family, family, layers=2)
    network = load_network(
        path, read_modelspec(path), dtype=torch.float32, device=torch.device("cpu")
    )
    tokens = torch.tensor([PROMPT, PROMPT[::-1]])
    cache = network.make_cache(2, 64)
    cache.length = 64
    for at in range(tokens.shape[1]):
        stepped = network.step(tokens[:, at], cache)
        cache.at += 1
    whole, _ = network(tokens)
    assert torch.allclose(stepped, whole[:, -1], atol=1e-4)


def test_a_tap_is_the_stream_entering_its_layer(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m", "llama", layers=2)
    network = load_network(
        path, read_modelspec(path), dtype=torch.float32, device=torch.device("cpu")
    )
    tokens = torch.tensor([PROMPT])
    last, (first, _, end) = network(tokens, taps=(0, 1, 2))
    assert torch.equal(first, network.model.embed_tokens(tokens))
    assert torch.equal(end, last)


def test_a_gguf_file_is_read_too(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    network = load_network(
        path, read_modelspec(path), dtype=torch.float32, device=torch.device("cpu")
    )
    written = greedy_text(path, 8)
    hidden, _ = network(torch.tensor([PROMPT + written]))
    assert network.logits(hidden)[0, len(PROMPT) - 1 : -1].argmax(1).tolist() == written


def test_weights_of_another_shape_are_refused(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m", "llama")
    other = read_modelspec(tiny_model(tmp_path / "o", "llama", intermediate=64))
    with pytest.raises(CorruptFileError, match="do not belong together"):
        load_network(path, other, dtype=torch.float32, device=torch.device("cpu"))

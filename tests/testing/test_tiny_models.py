"""The tiny models are real: transformers loads them and their logits are worth sampling from."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

from outdraft.errors import OptionError
from outdraft.testing.tiny_models import FAMILIES, GGUF_QUANTS, tiny_gguf, tiny_model
from outdraft.testing.tiny_tokenizer import CONTROL, TOKENIZER_SIZE, tiny_vocab


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    ids = torch.randint(3, TOKENIZER_SIZE, (1, 48), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits: torch.Tensor = model(ids).logits[0].float()  # [48, vocab]
    return logits


def assert_lively(logits: torch.Tensor) -> None:
    assert logits.isfinite().all()
    assert 2 < logits.std(-1).mean() < 4
    probabilities = logits.softmax(-1)
    entropy = -(probabilities * probabilities.log2()).sum(-1).mean()
    assert 2 < entropy < 6
    assert logits.argmax(-1).unique().numel() > 12  # not one favourite token


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_loads_every_family(tmp_path: Path, family: str) -> None:
    folder = tiny_model(tmp_path, family)
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert_lively(logits_of(model))
    greedy = model.generate(
        torch.tensor([[5, 6, 7]]), max_new_tokens=64, do_sample=False, eos_token_id=None
    )
    assert greedy[0].unique().numel() > 12


@pytest.mark.parametrize("quant", GGUF_QUANTS)
def test_transformers_loads_every_gguf_type(tmp_path: Path, quant: str) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", quant=quant)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    assert_lively(logits_of(model))


def test_families_differ_where_they_should(tmp_path: Path) -> None:
    loaded = {
        family: AutoModelForCausalLM.from_pretrained(tiny_model(tmp_path / family, family))
        for family in FAMILIES
    }
    assert loaded["mistral"].config.sliding_window == 24
    assert loaded["smollm3"].config.no_rope_layers == [1, 0]
    plain = logits_of(loaded["llama"])
    # Same seed, same weights: only rope scaling and the window tell these apart.
    assert not torch.allclose(plain, logits_of(loaded["llama3"]))
    windowed = logits_of(loaded["mistral"])
    assert torch.allclose(plain[:24], windowed[:24], atol=1e-4)
    assert not torch.allclose(plain[30:], windowed[30:], atol=1e-2)


def test_seed_and_perturbation(tmp_path: Path) -> None:
    def weights(name: str, **options: float) -> dict[str, object]:
        folder = tiny_model(tmp_path / name, "llama", **options)  # type: ignore[arg-type]
        return dict(load_file(folder / "model.safetensors"))

    first, again = weights("a", seed=1), weights("b", seed=1)
    assert all((first[name] == again[name]).all() for name in first)  # type: ignore[attr-defined]
    name = "lm_head.weight"
    assert (first[name] != weights("c", seed=2)[name]).all()  # type: ignore[attr-defined]
    near = weights("d", seed=1, perturb=0.1)[name]
    share = (near - first[name]).std() / first[name].std()  # type: ignore[operator,attr-defined]
    assert share == pytest.approx(0.1, rel=0.05)


def test_vocab(tmp_path: Path) -> None:
    vocab = tiny_vocab()
    assert len(vocab.tokens) == len(set(vocab.tokens)) == TOKENIZER_SIZE
    assert tuple(vocab.tokens[:3]) == CONTROL
    assert tiny_vocab(500).tokens == vocab.tokens
    assert tiny_vocab(320).tokens == vocab.tokens[:320]
    wide = tiny_model(tmp_path, "llama", vocab=500)
    assert AutoModelForCausalLM.from_pretrained(wide).lm_head.weight.shape[0] == 500


def test_unknown_names() -> None:
    with pytest.raises(OptionError, match="did you mean 'qwen2'"):
        tiny_model(Path("unused"), "qwen2.5")
    with pytest.raises(OptionError, match="valid: F32"):
        tiny_gguf(Path("unused.gguf"), quant="Q9")

"""Which drafts go with which targets, and what is said about those that do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import PairingError
from outdraft.plan.findings import Check, Pairing
from outdraft.plan.models import TABLE, Model, find_model
from outdraft.plan.pairing import pair
from outdraft.testing.tiny_models import tiny_gguf, tiny_model
from tests.modelspec.test_vocabulary import edit


def listed(name: str) -> Model:
    return TABLE[name]


def tiny(path: Path, family: str = "llama", **sizes: Any) -> Model:
    return find_model(str(tiny_model(path, family, **sizes)))


def finding(pairing: Pairing, name: str) -> Check:
    return next(each for each in pairing.findings if each.name == name)


def states(pairing: Pairing) -> dict[str, str]:
    return {each.name: each.state for each in pairing.findings}


def test_a_good_pair_of_the_table() -> None:
    found = pair(listed("llama-3.1-70b"), listed("llama-3.1-8b"), 8192)
    assert found.size_ratio == pytest.approx(8.786, rel=1e-3)
    assert (found.same_family, found.same_tokenizer) == (True, True)
    assert set(states(found).values()) == {"ok"}


def test_other_tokenizers_cannot_pair() -> None:
    with pytest.raises(PairingError, match=r"qwen3-8b cannot draft for llama-3.1-70b: .*llama3"):
        pair(listed("llama-3.1-70b"), listed("qwen3-8b"), 8192)


def test_real_tokenizers_are_compared_token_by_token(tmp_path: Path) -> None:
    target = tiny(tmp_path / "target", layers=4)
    found = pair(target, find_model(str(tiny_gguf(tmp_path / "draft.gguf"))), 512)
    assert found.same_tokenizer
    assert finding(found, "vocabulary").value == "384 tokens, all equal"
    assert states(found)["special_tokens"] == states(found)["chat_template"] == "ok"
    with pytest.raises(PairingError, match=r"first that differs is id 300: .* in the target"):
        pair(target, tiny(tmp_path / "other", vocab=300), 512)


def test_what_differs_without_being_in_the_way(tmp_path: Path) -> None:
    target = tiny(tmp_path / "target", "llama", vocab=400)
    folder = tiny_model(tmp_path / "draft", "qwen2", context=128)
    edit(folder, "tokenizer_config.json", lambda each: each.update(eos_token="<|im_end|>"))
    (folder / "chat_template.jinja").write_text("another")
    found = pair(target, find_model(str(folder)), 512)
    assert states(found) == {
        "vocabulary": "ok",
        "embedding_rows": "warn",
        "special_tokens": "warn",
        "chat_template": "warn",
        "context": "warn",
        "family": "warn",
        "size_ratio": "warn",
    }
    assert "eos_token '<|endoftext|>' and '<|im_end|>'" in str(
        finding(found, "special_tokens").value
    )
    assert "beyond 128 tokens" in finding(found, "context").advice
    assert all(each.advice for each in found.findings if each.state == "warn")
    assert found.same_family is False


def test_sizes_alone_say_little(tmp_path: Path) -> None:
    target, folder = tiny(tmp_path / "target"), tiny_model(tmp_path / "draft", "llama")
    (folder / "tokenizer.json").unlink()
    found = pair(target, find_model(str(folder)), 512)
    assert found.same_tokenizer is None
    assert states(found)["vocabulary"] == "unknown"
    with pytest.raises(PairingError, match="the target has 384 tokens, the draft 128256"):
        pair(target, listed("llama-3.2-1b"), 512)


def test_padding_is_warned_of() -> None:
    found = pair(listed("qwen2.5-72b"), listed("qwen2.5-0.5b"), 8192)
    assert states(found)["embedding_rows"] == "warn"
    assert "use_heterogeneous_vocab" in finding(found, "embedding_rows").advice


def test_a_mixture_is_as_large_as_what_works() -> None:
    found = pair(listed("qwen3-30b-a3b"), listed("qwen3-0.6b"), 8192)
    assert found.size_ratio == pytest.approx(3353 / 596, rel=1e-2)


def head(folder: Path, **changes: Any) -> Model:
    config = json.loads((tiny_model(folder, "llama", layers=1) / "config.json").read_text())
    config |= {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 100, **changes}
    (folder / "config.json").write_text(json.dumps(config))
    return find_model(str(folder))


def test_an_eagle_head(tmp_path: Path) -> None:
    target = tiny(tmp_path / "target", layers=8)
    found = pair(target, head(tmp_path / "head"), 512)
    assert states(found) == dict.fromkeys(
        ["hidden_size", "tapped_layers", "draft_vocabulary", "context"], "ok"
    )
    assert finding(found, "tapped_layers").value == "2, 4, 5 (the engine's default)"
    assert finding(found, "draft_vocabulary").value == "100 of 384 tokens"
    assert (found.size_ratio, found.same_tokenizer) == (None, True)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"hidden_size": 32}, "states of 32 numbers, the target's have 64"),
        ({"target_hidden_size": 48}, "states of 48 numbers, the target's have 64"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 9]}, "taps layers 1, 9, the target has 8"),
        ({"vocab_size": 999}, "vocabulary has 999 tokens, the target's 384"),
    ],
)
def test_a_head_of_another_target(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(PairingError, match=why) as caught:
        pair(tiny(tmp_path / "target", layers=8), head(tmp_path / "head", **changes), 512)
    assert "\n" not in str(caught.value)


def test_a_head_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(PairingError, match="is a draft head, not a target"):
        pair(head(tmp_path / "head"), tiny(tmp_path / "draft"), 512)

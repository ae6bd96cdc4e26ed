"""config.json of every family, and what is wrong with one that cannot be used."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import (
    CorruptFileError,
    ModelError,
    OutdraftError,
    PairingError,
    UnsupportedArchitectureError,
)
from outdraft.modelspec import HeadSpec, MedusaSpec, ModelSpec, read_modelspec, read_spec
from outdraft.modelspec.head import check_draft_kind, draft_method
from outdraft.modelspec.mtp import num_mtp_layers
from outdraft.plan import Model, PlanSettings, parse_gpu, plan_memory
from outdraft.plan.models import TABLE

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14_336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128_256,
    "max_position_embeddings": 131_072,
    "rope_scaling": {"rope_type": "yarn", "factor": 4},  # nothing to a plan
}
OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "attention_bias": True,
    "sliding_window": 128,
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
}
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18_432,
    "moe_intermediate_size": 2048,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129_280,
    "max_position_embeddings": 163_840,
}
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
}
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
MIXTRAL |= {"vocab_size": 32_000, "max_position_embeddings": 32_768}
EAGLE3: dict[str, Any] = {
    **LLAMA,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32_000,
}


MEDUSA: dict[str, Any] = {
    "model_type": "medusa",
    "hidden_size": 4096,
    "vocab_size": 128_256,
    "num_heads": 5,
    "num_hidden_layers": 2,
}


def write(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (LLAMA, "llama-3.1-8b"),
        (OSS, "gpt-oss-20b"),
        (DEEPSEEK, "deepseek-v3"),
        (QWEN_MOE, "qwen3-30b-a3b"),
        (MIXTRAL, "mixtral-8x7b"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_published_config_is_the_tables_entry(
    tmp_path: Path, config: dict[str, Any], name: str
) -> None:
    found = read_spec(write(tmp_path, config))
    assert replace(found, other_features=()) == TABLE[name].spec
    assert [each for each in found.other_features if "yarn" not in each] == []


@pytest.mark.parametrize("config", [OSS, DEEPSEEK, QWEN_MOE, MIXTRAL])
def test_what_is_only_planned_is_refused_by_the_engine(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    family = config["model_type"]
    said = f"unsupported architecture '{family}', a mixture of .* experts in .*runs: llama, mistral"
    with pytest.raises(UnsupportedArchitectureError, match=said) as caught:
        read_modelspec(write(tmp_path, config))
    assert "\n" not in str(caught.value)


def test_quantized_weights_are_planned_and_refused_by_the_engine(tmp_path: Path) -> None:
    packed = {**LLAMA, "quantization_config": {"quant_method": "awq"}}
    spec = read_spec(write(tmp_path, packed))
    assert isinstance(spec, ModelSpec)
    assert spec.quantization == "awq"
    with pytest.raises(ModelError, match="weights quantized by 'awq', which this engine does not"):
        read_modelspec(tmp_path)


def test_a_head_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a draft head, not a model; use it with method eagle"):
        read_modelspec(write(tmp_path, EAGLE3))


def test_a_text_model_inside_another(tmp_path: Path) -> None:
    outer = {"model_type": "mistral3", "text_config": {**LLAMA, "model_type": "mistral"}}
    outer["text_config"] |= {"sliding_window": None}  # type: ignore[operator]
    found = read_spec(write(tmp_path, outer))
    assert (found.family, found.num_layers, found.windows) == ("mistral", 32, (None,) * 32)
    assert any("'mistral3'" in each for each in found.other_features), "which the engine refuses"


@pytest.mark.parametrize(
    ("changes", "windows"),
    [
        ({"model_type": "mistral", "sliding_window": 16}, [16] * 4),
        ({"model_type": "mistral"}, [4096] * 4),  # what the family means by saying nothing
        ({"model_type": "qwen2", "sliding_window": 16}, [None] * 4),
        (
            {
                "model_type": "qwen2",
                "sliding_window": 16,
                "use_sliding_window": True,
                "max_window_layers": 3,
            },
            [None, None, None, 16],
        ),
        (
            {"model_type": "smollm3", "sliding_window": 16, "use_sliding_window": True},
            [None, None, None, 16],
        ),
        (  # the layers without rotary embedding, wherever they are
            {
                "model_type": "smollm3",
                "sliding_window": 16,
                "use_sliding_window": True,
                "no_rope_layers": [0, 1, 1, 0],
            },
            [16, None, None, 16],
        ),
    ],
)
def test_windows(tmp_path: Path, changes: dict[str, Any], windows: list[int | None]) -> None:
    config = {**LLAMA, "num_hidden_layers": 4, **changes}
    assert list(read_spec(write(tmp_path, config)).windows) == windows


@pytest.mark.parametrize(
    ("config", "taps"),
    [
        (EAGLE3, None),
        ({**EAGLE3, "eagle_aux_hidden_state_layer_ids": [1, 5, 9]}, (1, 5, 9)),
        # counted by their outputs there, so the stream enters the next layer
        ({**EAGLE3, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5]}}, (2, 6)),
        (
            {
                "architectures": ["Eagle3Speculator"],
                "speculators_model_type": "eagle3",
                "draft_vocab_size": 32_000,
                "eagle_aux_hidden_state_layer_ids": [4],
                "transformer_layer_config": {**LLAMA, "num_hidden_layers": 1},
            },
            (4,),
        ),
    ],
)
def test_eagle3_heads_in_every_layout(
    tmp_path: Path, config: dict[str, Any], taps: tuple[int, ...] | None
) -> None:
    found = read_spec(write(tmp_path, config))
    assert isinstance(found, HeadSpec)
    assert (found.kind, found.target_hidden_size, found.layer_ids) == ("eagle3", 4096, taps)
    assert (found.draft_vocab_size, found.num_layers) == (32_000, 1)


def test_an_eagle_head_shares_what_it_can(tmp_path: Path) -> None:
    config = {**LLAMA, "model_type": "eagle", "architectures": ["EagleLlamaForCausalLM"]}
    found = read_spec(write(tmp_path, config))
    assert isinstance(found, HeadSpec)
    assert (found.kind, found.target_hidden_size, found.layer_ids) == ("eagle", 4096, None)
    assert (found.draft_vocab_size, found.taps(32)) == (128_256, ())
    eagle3 = read_spec(write(tmp_path, EAGLE3))
    assert isinstance(eagle3, HeadSpec)
    assert eagle3.taps(32) == (2, 16, 29)


@pytest.mark.parametrize(
    ("config", "key"),
    [(LLAMA, "num_hidden_layers"), (LLAMA, "vocab_size"), (LLAMA, "model_type"),
     (OSS, "num_local_experts"), (DEEPSEEK, "kv_lora_rank"), (QWEN_MOE, "moe_intermediate_size"),
     (EAGLE3, "hidden_size")],
)  # fmt: skip
def test_a_missing_field_is_named(tmp_path: Path, config: dict[str, Any], key: str) -> None:
    path = write(tmp_path, {name: value for name, value in config.items() if name != key})
    with pytest.raises(CorruptFileError, match=rf"config\.json lacks the key '{key}'") as caught:
        read_spec(path)
    assert str(path / "config.json") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", [LLAMA, OSS, DEEPSEEK, QWEN_MOE, MIXTRAL, EAGLE3, MEDUSA])
@pytest.mark.parametrize("value", [0, -1, 10**30, "x", None, [None], {}])
def test_any_value_is_planned_with_or_refused(
    tmp_path: Path, config: dict[str, Any], value: Any
) -> None:
    """Never a traceback: an odd value is refused in one line, or counted."""
    for key in config:
        path = write(tmp_path, {**config, key: value})
        with suppress(OutdraftError):
            model = Model("odd", "folder", read_spec(path))
            is_head = isinstance(model.spec, HeadSpec | MedusaSpec)
            target = TABLE["llama-3.1-8b"] if is_head else model
            draft = model if is_head else None
            longest = target.spec.max_context
            plan_memory(target, draft, parse_gpu("h100"), PlanSettings(longest)).to_json()


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (DEEPSEEK, 1),
        ({"model_type": "qwen3_next", "mtp_num_hidden_layers": 1}, 1),
        ({"model_type": "qwen3_5", "text_config": {"mtp_num_hidden_layers": 2}}, 2),
        (LLAMA, 0),
        ({"num_nextn_predict_layers": 0, "text_config": None}, 0),
        ({"num_nextn_predict_layers": "one"}, 0),
        ({"num_nextn_predict_layers": 10**9}, 0),
    ],
)
def test_layers_for_multi_token_prediction(config: dict[str, Any], layers: int) -> None:
    """Also of families that cannot be planned: engines run them."""
    assert num_mtp_layers(config) == layers


def test_medusa_heads(tmp_path: Path) -> None:
    spec = read_spec(write(tmp_path, MEDUSA))
    assert isinstance(spec, MedusaSpec)
    assert (spec.num_guesses, spec.num_blocks, spec.kv_bytes_per_token()) == (5, 2, 0)
    assert draft_method(tmp_path) == "medusa"
    first = {"medusa_num_heads": 3, "medusa_num_layers": 1, "hidden_size": 64, "vocab_size": 9}
    assert read_spec(write(tmp_path, first)).num_guesses == 3  # type: ignore[union-attr]
    assert draft_method(tmp_path) == "medusa", "the first checkpoints have no model_type"
    with pytest.raises(
        ModelError, match=r"Medusa heads, which this engine does not run; vLLM does"
    ):
        read_modelspec(tmp_path)
    for method, kind in (("eagle", "head"), ("draft_model", "model")):
        with pytest.raises(
            PairingError, match=f"set of Medusa heads, not a {kind}; use method med"
        ):
            check_draft_kind(method, tmp_path, "x")


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="wrong kind"):
        read_spec(write(tmp_path, {**LLAMA, "hidden_size": "wide"}))
    with pytest.raises(CorruptFileError, match="no_rope_layers has 2 entries for 32 layers"):
        read_spec(write(tmp_path, {**LLAMA, "model_type": "smollm3", "no_rope_layers": [1, 0]}))
    with pytest.raises(CorruptFileError, match="num_hidden_layers is 0"):
        read_spec(write(tmp_path, {**LLAMA, "num_hidden_layers": 0}))
    with pytest.raises(UnsupportedArchitectureError, match=r"'gemma3'.*llama, mistral"):
        read_spec(write(tmp_path, {**LLAMA, "model_type": "gemma3"}))
    with pytest.raises(UnsupportedArchitectureError, match=r"'dflash'.*eagle, eagle3"):
        read_spec(write(tmp_path, {**LLAMA, "speculators_model_type": "dflash"}))
    with pytest.raises(ModelError, match=r"no config\.json in"):
        read_spec(write(tmp_path, LLAMA).parent)

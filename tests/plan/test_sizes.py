"""The formulas: against transformers' own modules, and against what must hold for any model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import OptionError
from outdraft.modelspec import HeadSpec, ModelSpec, read_spec
from outdraft.modelspec.spec import Experts
from outdraft.plan.models import TABLE
from outdraft.plan.sizes import (
    KV_DTYPES,
    active_parameters,
    check_ranks,
    kv_bytes_of_sequence,
    num_parameters,
    parameters_by_part,
    total_bytes,
    weight_bytes,
)

SMALL = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 300,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
DEEPSEEK = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "n_shared_experts": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "num_key_value_heads": 4,
    "n_group": 2,
    "topk_group": 1,
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
LLAMA_70B = TABLE["llama-3.1-70b"].spec


@pytest.mark.parametrize(
    ("family", "changes", "extra"),
    [
        ("Llama", {}, 0),
        ("Llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}, 0),
        ("Mistral", {}, 0),
        ("Mixtral", LOCAL, 0),
        ("Qwen2", {"tie_word_embeddings": True}, 0),
        ("Qwen3", {}, 0),
        ("Qwen3Moe", {**MOE, "mlp_only_layers": []}, 0),
        ("GptOss", {**LOCAL, "head_dim": 16, "initial_context_length": 16}, 0),
        # transformers keeps the router's correction beside the parameters, 8 in 3 layers
        ("DeepseekV3", DEEPSEEK, 24),
        ("DeepseekV3", {**DEEPSEEK, "q_lora_rank": None}, 24),
        ("SmolLM3", {}, 0),
    ],
)
def test_parameters_equal_those_of_transformers(
    tmp_path: Path, family: str, changes: dict[str, Any], extra: int
) -> None:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **changes})
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    config.save_pretrained(tmp_path)
    read = read_spec(tmp_path)
    assert num_parameters(read) == sum(each.numel() for each in model.parameters()) + extra
    assert sum(parameters_by_part(read).values()) == num_parameters(read)


def test_embedding_and_head_stay_in_16_bits() -> None:
    by_part = weight_bytes(LLAMA_70B, "int8")
    assert by_part["embedding"] == by_part["head"] == 128_256 * 8192 * 2
    assert by_part["norms"] == (2 * 80 + 1) * 8192 * 2
    rows = 80 * (8192 + 2 * 1024 + 8192)
    assert by_part["attention"] == parameters_by_part(LLAMA_70B)["attention"] + 4 * rows


def test_a_tied_embedding_is_counted_once() -> None:
    tied = replace(LLAMA_70B, tie_embeddings=True)
    assert num_parameters(LLAMA_70B) - num_parameters(tied) == 128_256 * 8192
    assert "head" not in weight_bytes(tied, "bf16")


def test_bits_of_the_schemes() -> None:
    layer = weight_bytes(LLAMA_70B, "int4")["mlp"] * 8 / parameters_by_part(LLAMA_70B)["mlp"]
    assert layer == pytest.approx(4 + 20 / 128)
    oss = TABLE["gpt-oss-20b"].spec
    assert total_bytes(oss, "mxfp4") == pytest.approx(13.76e9, rel=0.003), "its published files"


@pytest.mark.parametrize(
    ("name", "kv_dtype", "ranks", "expected"),
    [
        ("llama-3.1-70b", "bfloat16", 1, 2 * 80 * 8 * 128 * 2),
        ("llama-3.1-70b", "fp8", 2, 2 * 80 * 4 * 128),
        ("llama-3.1-70b", "bfloat16", 16, 2 * 80 * 1 * 128 * 2),  # every head twice
        ("smollm2-135m", "float32", 1, 46_080),
        ("deepseek-v3", "bfloat16", 1, 61 * (512 + 64) * 2),
        ("deepseek-v3", "bfloat16", 8, 61 * (512 + 64) * 2),  # the latent is on every device
    ],
)
def test_kv_bytes_per_token(name: str, kv_dtype: str, ranks: int, expected: int) -> None:
    assert TABLE[name].spec.kv_bytes_per_token(KV_DTYPES[kv_dtype], ranks) == expected


def test_windows_bound_what_a_layer_keeps() -> None:
    oss = TABLE["gpt-oss-20b"].spec
    layer = 2 * 8 * 64 * 2
    assert kv_bytes_of_sequence(oss, 100, "bfloat16") == 24 * layer * 100
    assert kv_bytes_of_sequence(oss, 10_000, "bfloat16") == 12 * layer * (10_000 + 127)
    long = kv_bytes_of_sequence(oss, 100_000, "bfloat16", chunk=8192)
    assert long == 12 * layer * (100_000 + 127 + 8192)


def test_active_parameters_of_a_mixture() -> None:
    mixtral = TABLE["mixtral-8x7b"].spec
    experts = parameters_by_part(mixtral)["experts"]
    assert active_parameters(mixtral) == num_parameters(mixtral) - experts * 6 // 8
    assert active_parameters(LLAMA_70B) == num_parameters(LLAMA_70B)


def test_an_eagle3_head_is_one_layer_with_a_small_vocabulary() -> None:
    head = HeadSpec(
        "llama", 1, 4096, 14_336, 32, 8, 128, 128_256, 2048,
        target_hidden_size=4096, draft_vocab_size=32_000,
    )  # fmt: skip
    by_part = parameters_by_part(head)
    assert by_part["head"] == 32_000 * 4096
    assert "embedding" not in by_part
    assert by_part["attention"] == 3 * 4096 * 4096 + 4096 * (2 * (4096 + 2 * 1024)) + 4096 * 4096
    owning = replace(head, has_embedding=True)
    assert parameters_by_part(owning)["embedding"] == 128_256 * 4096


def test_heads_that_do_not_divide_are_refused() -> None:
    smollm2 = TABLE["smollm2-135m"].spec
    check_ranks(smollm2, 3, "smollm2")
    with pytest.raises(OptionError, match=r"9 attention heads and 3 KV heads.*2 devices.*1, 3, 9"):
        check_ranks(smollm2, 2, "smollm2")


@st.composite
def architectures(draw: st.DrawFn) -> ModelSpec:
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    groups = draw(st.sampled_from([1, 2, 4]))
    head_dim = 8 * draw(st.integers(1, 16))
    is_mixture = draw(st.booleans())
    return ModelSpec(
        "llama",
        num_layers=draw(st.integers(1, 6)),
        hidden_size=64 * draw(st.integers(1, 16)),
        intermediate_size=64 * draw(st.integers(1, 16)),
        num_heads=kv_heads * groups,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=draw(st.integers(1, 1000)),
        max_context=2048,
        tie_embeddings=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        experts=Experts(8, 2, 64) if is_mixture else None,
    )


@given(architectures(), st.sampled_from([1, 2, 4, 8]))
def test_what_holds_for_any_model(model: ModelSpec, ranks: int) -> None:
    whole = total_bytes(model, "bf16")
    assert whole == 2 * num_parameters(model)
    assert total_bytes(model, "int4") < total_bytes(model, "int8") <= total_bytes(model, "fp8")
    # Together the ranks hold everything, and norms, routers and KV heads possibly more than once.
    assert whole <= ranks * total_bytes(model, "bf16", ranks)
    assert total_bytes(model, "bf16", ranks) <= whole
    repeated = max(1, ranks // model.num_kv_heads)
    per_token = model.kv_bytes_per_token(2)
    assert ranks * model.kv_bytes_per_token(2, ranks) == repeated * per_token
    assert active_parameters(model) <= num_parameters(model)

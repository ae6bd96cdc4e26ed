"""Architecture of a GGUF header. What config.json says with a flag, a tensor's presence says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError
from outdraft.modelspec.gguf_header import GgufHeader, read_gguf_header
from outdraft.plan.architecture import (
    MAX_LAYERS,
    Architecture,
    Experts,
    Latent,
    check_count,
    check_family,
)

# llama.cpp's names → config.json's. A mixtral calls itself llama there, and so does a mistral.
_FAMILIES = {
    "qwen3moe": "qwen3_moe",
    "gpt-oss": "gpt_oss",
    "gptoss": "gpt_oss",
    "deepseek2": "deepseek_v3",
}
_PER_LAYER = ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
_NOT_WEIGHTS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def read_header(path: Path) -> tuple[Architecture, int, int]:
    """The architecture, and the values and bytes of the tensors that the file really holds."""
    name = read_gguf_header(path).architecture
    header = read_gguf_header(path, arrays=[f"{name}.{key}" for key in _PER_LAYER])
    try:
        model = _build(header, name, path)
    except KeyError as error:
        raise CorruptFileError(f"{path} lacks the key {error}; fetch it again") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise CorruptFileError(f"{path}: impossible header ({error}); fetch it again") from error
    held = [each for key, each in header.tensors.items() if key not in _NOT_WEIGHTS]
    return model, sum(each.num_values for each in held), sum(each.num_bytes for each in held)


def _build(header: GgufHeader, name: str, path: Path) -> Architecture:
    fields, tensors = header.values, header.tensors

    def number(key: str, default: int | None = None) -> int:
        value: Any = fields.get(f"{name}.{key}", default)
        if value is None:
            raise KeyError(f"{name}.{key}")
        return int(max(value) if isinstance(value, list) else value)

    family = check_family(_FAMILIES.get(name, name), path)
    num_experts = number("expert_count", 0)
    if family == "llama" and num_experts:
        family = "mixtral"
    layers, heads, hidden = (
        number(key) for key in ("block_count", "attention.head_count", "embedding_length")
    )
    check_count("block_count", layers, MAX_LAYERS)
    latent = _latent(number) if family == "deepseek_v3" else None
    window = number("attention.sliding_window", 0)
    inner = number("feed_forward_length")
    return Architecture(
        family=family,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads,
        # A latent cache is written there as one KV head; the weights have them all.
        num_kv_heads=number("attention.head_count_kv", heads) if latent is None else heads,
        head_dim=number("attention.key_length", hidden // heads)
        if latent is None
        else latent.nope_dim + latent.rope_dim,
        vocab_size=tensors["token_embd.weight"].shape[0],
        max_context=number("context_length"),
        tie_embeddings="output.weight" not in tensors,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_down.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        has_sinks="blk.0.attn_sinks.weight" in tensors,
        experts=Experts(
            num_experts,
            number("expert_used_count"),
            number("expert_feed_forward_length", inner),
            shared=number("expert_shared_count", 0),
            dense_layers=number("leading_dense_block_count", 0),
            has_bias=f"blk.{layers - 1}.ffn_down_exps.bias" in tensors,
            has_router_bias=f"blk.{layers - 1}.ffn_gate_inp.bias" in tensors
            or f"blk.{layers - 1}.exp_probs_b.bias" in tensors,
        )
        if num_experts
        else None,
        latent=latent,
        windows=_windows(family, window, layers),
    )


def _latent(number: Any) -> Latent:
    rope = number("rope.dimension_count")
    key = number("attention.key_length_mla", number("attention.key_length"))
    return Latent(
        q_rank=number("attention.q_lora_rank", 0) or None,
        kv_rank=number("attention.kv_lora_rank"),
        nope_dim=key - rope,
        rope_dim=rope,
        v_dim=number("attention.value_length_mla", number("attention.value_length")),
    )


def _windows(family: str, window: int, layers: int) -> tuple[int | None, ...]:
    if not window:
        return ()
    every_second = family == "gpt_oss"
    return tuple(window if layer % 2 == 0 or not every_second else None for layer in range(layers))

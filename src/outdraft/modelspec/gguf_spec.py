"""ModelSpec of a .gguf file.

The header names its keys by architecture (``llama.block_count``). What config.json says with a
flag, GGUF says with the presence of a tensor: a bias, a q/k norm, an output matrix of its own, a
table of rope factors.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outdraft.errors import CorruptFileError
from outdraft.modelspec.gguf_header import GgufHeader, read_gguf_header
from outdraft.modelspec.spec import (
    FAMILIES,
    MAX_LAYERS,
    Experts,
    Latent,
    ModelSpec,
    RopeScaling,
    check_count,
    check_family,
)
from outdraft.modelspec.tensors import TensorEntry, damaged_values, stored_sizes

_ROPE_FACTORS = "rope_freqs.weight"
_NOT_PARAMETERS = (_ROPE_FACTORS, "rope_factors_long.weight", "rope_factors_short.weight")
_SMOLLM3_NOPE_INTERVAL = 4  # the format has no key for it: every reader has it built in

# llama.cpp's names → config.json's. Mistral and Mixtral call themselves llama there.
_FAMILIES = {
    "qwen3moe": "qwen3_moe",
    "gpt-oss": "gpt_oss",
    "gptoss": "gpt_oss",
    "deepseek2": "deepseek_v3",
}
# End of text, of turn and of message: any of them ends a generation.
_END_KEYS = tuple(f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom"))
# Numbers that a file may give layer by layer.
_PER_LAYER = tuple(
    f"{name}.{key}"
    for name in (*FAMILIES, *_FAMILIES)
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
)


class _Numbers:
    """The header's numbers, by their key without the architecture in front."""

    def __init__(self, header: GgufHeader) -> None:
        self._values, self._architecture = header.values, header.architecture
        self.features: list[str] = []

    def __call__(self, key: str, default: float | str | None = None) -> Any:
        name = f"{self._architecture}.{key}"
        value: Any = self._values[name] if default is None else self._values.get(name, default)
        if not isinstance(value, list):
            return value
        if len(set(value)) != 1:
            self.features.append(f"{key} that differs by layer: {value}")
        return max(value)

    def count(self, key: str, default: int | None = None) -> int:
        return int(self(key, default))


def read_gguf(path: Path) -> ModelSpec:
    """Read the ModelSpec out of a GGUF header."""
    header = read_gguf_header(path, arrays=_PER_LAYER)
    with damaged_values(path):
        return _build(header, path)


def _build(header: GgufHeader, path: Path) -> ModelSpec:
    fields: Mapping[str, Any] = header.values
    tensors, number = header.tensors, _Numbers(header)
    architecture = str(fields["general.architecture"])
    family = check_family(_FAMILIES.get(architecture, architecture), path)
    num_layers = check_count("block_count", number.count("block_count"), MAX_LAYERS)
    heads, hidden = number.count("attention.head_count"), number.count("embedding_length")
    experts = _experts(number, tensors, num_layers)
    if family == "llama" and experts is not None:
        family = "mixtral"
    latent = _latent(number) if family == "deepseek_v3" else None
    if latent is None:
        kv_heads = number.count("attention.head_count_kv", heads)
        head_dim = number.count("attention.key_length", hidden // heads)
        rotated = number.count("rope.dimension_count", head_dim)
        if rotated != head_dim:
            number.features.append(f"partial rotary embedding, {rotated} of {head_dim} values")
    else:  # the latent cache is written as one KV head; the weights have them all
        kv_heads, head_dim = heads, latent.nope_dim + latent.rope_dim
    bos = fields.get("tokenizer.ggml.bos_token_id")
    return ModelSpec(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=number.count("feed_forward_length"),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=tensors["token_embd.weight"].shape[0],
        max_context=number.count("context_length"),
        qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_down.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        rms_eps=float(number("attention.layer_norm_rms_epsilon", 0.0)),
        rope_theta=float(number("rope.freq_base", 10_000.0)),
        rope_scaling=_rope_scaling(number, tensors.get(_ROPE_FACTORS), path),
        windows=_windows(family, number.count("attention.sliding_window", 0), num_layers),
        **stored_sizes(tensors.values(), _NOT_PARAMETERS),
        tie_embeddings="output.weight" not in tensors,
        has_sinks="blk.0.attn_sinks.weight" in tensors,
        experts=experts,
        latent=latent,
        rope_layers=tuple(
            family != "smollm3" or (layer + 1) % _SMOLLM3_NOPE_INTERVAL != 0
            for layer in range(num_layers)
        ),
        eos_ids=tuple(dict.fromkeys(int(fields[key]) for key in _END_KEYS if key in fields)),
        bos_id=None if bos is None else int(bos),
        other_features=tuple(number.features),
    )


def _experts(
    number: _Numbers, tensors: Mapping[str, TensorEntry], num_layers: int
) -> Experts | None:
    count = number.count("expert_count", 0)
    if not count:
        return None
    last = f"blk.{num_layers - 1}"
    return Experts(
        count,
        number.count("expert_used_count"),
        number.count("expert_feed_forward_length", number.count("feed_forward_length")),
        shared=number.count("expert_shared_count", 0),
        dense_layers=number.count("leading_dense_block_count", 0),
        has_bias=f"{last}.ffn_down_exps.bias" in tensors,
        has_router_bias=f"{last}.ffn_gate_inp.bias" in tensors
        or f"{last}.exp_probs_b.bias" in tensors,
    )


def _latent(number: _Numbers) -> Latent:
    rope = number.count("rope.dimension_count")
    key = number.count("attention.key_length_mla", number.count("attention.key_length"))
    return Latent(
        q_rank=number.count("attention.q_lora_rank", 0) or None,
        kv_rank=number.count("attention.kv_lora_rank"),
        nope_dim=key - rope,
        rope_dim=rope,
        v_dim=number.count("attention.value_length_mla", number.count("attention.value_length")),
    )


def _windows(family: str, window: int, num_layers: int) -> tuple[int | None, ...]:
    if not window:
        return ()
    full_layers = range(1, num_layers, 2) if family == "gpt_oss" else ()
    return tuple(None if layer in full_layers else window for layer in range(num_layers))


def _rope_scaling(number: _Numbers, factors: TensorEntry | None, path: Path) -> RopeScaling | None:
    kind = number("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        number.features.append(
            f"rope scaling {kind!r} (supported: none, linear, {_ROPE_FACTORS} (llama3))"
        )
    if factors is not None:
        if factors.dtype != "F32":
            raise CorruptFileError(f"{path}: {_ROPE_FACTORS} is {factors.dtype}, expected F32")
        size = math.prod(factors.shape)
        values = np.fromfile(path, dtype="<f4", count=size, offset=factors.offset)
        return RopeScaling("factors", factors=tuple(values.tolist()))
    factor = float(number("rope.scaling.factor", 1.0))
    return RopeScaling("linear", factor=factor) if kind == "linear" and factor != 1.0 else None

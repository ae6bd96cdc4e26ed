"""ModelSpec of a .gguf file.

The header names its keys by architecture (``llama.block_count``). What
config.json says with a flag, GGUF says with the presence of a tensor: a bias,
a q/k norm, an output matrix of its own, a table of rope factors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outdraft.errors import CorruptFileError, ModelError, UnsupportedArchitectureError
from outdraft.modelspec.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from outdraft.modelspec.rope import RopeScaling
from outdraft.modelspec.spec import FAMILIES, ModelSpec, check_family

_ROPE_FACTORS = "rope_freqs.weight"
_SMOLLM3_NOPE_INTERVAL = 4  # the format has no key for it: every reader has it built in

# Numbers that a file may give layer by layer.
_PER_LAYER = tuple(
    f"{family}.{key}"
    for family in FAMILIES
    for key in ("attention.head_count", "attention.head_count_kv", "feed_forward_length")
)


def read_gguf(path: Path) -> ModelSpec:
    """Read the ModelSpec out of a GGUF header."""
    header = read_gguf_header(path, arrays=_PER_LAYER)
    try:
        return _build(header, path)
    except KeyError as error:
        raise CorruptFileError(f"{path} lacks the key {error}; fetch it again") from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CorruptFileError(f"{path}: impossible header ({error}); fetch it again") from error


def _build(header: GgufHeader, path: Path) -> ModelSpec:
    fields: Mapping[str, Any] = header.values
    # GGUF has no mistral of its own: such files say llama, and so do we (the
    # window, where there is one, is what makes the difference).
    family = check_family(str(fields["general.architecture"]), path)
    if fields.get(f"{family}.expert_count"):
        raise UnsupportedArchitectureError(
            f"unsupported architecture: {path} is a mixture of "
            f"{fields[f'{family}.expert_count']} experts; supported: dense {', '.join(FAMILIES)}"
        )
    tensors = header.tensors

    def number(key: str) -> Any:
        value = fields[f"{family}.{key}"]
        if isinstance(value, list):
            if len(set(value)) != 1:
                raise ModelError(f"{path} has a different {key} in each layer: {value}")
            return value[0]
        return value

    def number_or(key: str, default: Any) -> Any:
        return number(key) if f"{family}.{key}" in fields else default

    num_layers, num_heads = int(number("block_count")), int(number("attention.head_count"))
    hidden_size = int(number("embedding_length"))
    head_dim = int(number_or("attention.key_length", hidden_size // num_heads))
    rotated = int(number_or("rope.dimension_count", head_dim))
    if rotated != head_dim:
        raise ModelError(
            f"unsupported partial rotary embedding in {path}: {rotated} of {head_dim} values"
        )
    window = number_or("attention.sliding_window", None) or None
    bos = fields.get("tokenizer.ggml.bos_token_id")
    return ModelSpec(
        family=family,
        num_layers=num_layers,
        hidden_size=hidden_size,
        intermediate_size=int(number("feed_forward_length")),
        num_heads=num_heads,
        num_kv_heads=int(number_or("attention.head_count_kv", num_heads)),
        head_dim=head_dim,
        vocab_size=tensors["token_embd.weight"].shape[0],
        max_context=int(number("context_length")),
        rms_eps=float(number("attention.layer_norm_rms_epsilon")),
        rope_theta=float(number_or("rope.freq_base", 10_000.0)),
        rope_scaling=_rope_scaling(fields, family, tensors.get(_ROPE_FACTORS), path),
        tie_embeddings="output.weight" not in tensors,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        o_bias="blk.0.attn_output.bias" in tensors,
        mlp_bias="blk.0.ffn_down.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        rope_layers=tuple(
            family != "smollm3" or (layer + 1) % _SMOLLM3_NOPE_INTERVAL != 0
            for layer in range(num_layers)
        ),
        windows=(window,) * num_layers,
        eos_ids=_eos_ids(fields),
        bos_id=None if bos is None else int(bos),
        num_parameters=sum(t.num_values for name, t in tensors.items() if name != _ROPE_FACTORS),
        bytes_by_dtype=_bytes_by_dtype(tensors.values()),
    )


def _rope_scaling(
    fields: Mapping[str, Any], family: str, factors: GgufTensor | None, path: Path
) -> RopeScaling | None:
    kind = fields.get(f"{family}.rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        raise ModelError(
            f"unsupported rope scaling {kind!r} in {path}; supported: none, linear, "
            f"{_ROPE_FACTORS} (llama3)"
        )
    if factors is not None:
        values = _read_float32(factors, path)
        return RopeScaling("factors", factors=values)
    factor = float(fields.get(f"{family}.rope.scaling.factor", 1.0))
    if kind == "linear" and factor != 1.0:
        return RopeScaling("linear", factor=factor)
    return None


def _read_float32(tensor: GgufTensor, path: Path) -> tuple[float, ...]:
    if tensor.type_name != "F32":
        raise CorruptFileError(f"{path}: {_ROPE_FACTORS} is {tensor.type_name}, expected F32")
    values = np.fromfile(path, dtype="<f4", count=tensor.num_values, offset=tensor.offset)
    return tuple(float(value) for value in values)


def _bytes_by_dtype(tensors: Iterable[GgufTensor]) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for tensor in tensors:
        sums[tensor.type_name] += tensor.num_bytes
    return dict(sums)


def _eos_ids(fields: Mapping[str, Any]) -> tuple[int, ...]:
    # End of text, of turn and of message: any of them ends a generation.
    keys = [f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom")]
    return tuple(dict.fromkeys(int(fields[key]) for key in keys if key in fields))

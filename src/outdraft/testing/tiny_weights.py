"""Random weights that behave like a language model: lively, varied, dependent on the context.

Scales are chosen so that the logits have a standard deviation of about 3: sampling at
temperature 1 has a few bits of entropy and greedy text wanders. Layers write more into the
residual stream than the embedding does, or a tied model would only repeat its last token.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True)
class TinyShape:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False


def tensor_shapes(shape: TinyShape) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, extents and scale of every tensor; a norm's scale is its spread around one."""
    s = shape
    q_rows, kv_rows = s.heads * s.head_dim, s.kv_heads * s.head_dim
    from_hidden = s.hidden**-0.5
    yield "model.embed_tokens.weight", (s.vocab, s.hidden), 3 * from_hidden
    for i in range(s.layers):
        layer = f"model.layers.{i}"
        for name, rows, gain in (("q", q_rows, 1.3), ("k", kv_rows, 1.3), ("v", kv_rows, 1.0)):
            projection = f"{layer}.self_attn.{name}_proj"
            yield f"{projection}.weight", (rows, s.hidden), gain * from_hidden
            if s.qkv_bias:
                yield f"{projection}.bias", (rows,), 0.3
        if s.qk_norm:
            yield f"{layer}.self_attn.q_norm.weight", (s.head_dim,), 0.2
            yield f"{layer}.self_attn.k_norm.weight", (s.head_dim,), 0.2
        yield f"{layer}.self_attn.o_proj.weight", (s.hidden, q_rows), 3 * q_rows**-0.5
        yield f"{layer}.mlp.gate_proj.weight", (s.intermediate, s.hidden), 1.5 * from_hidden
        yield f"{layer}.mlp.up_proj.weight", (s.intermediate, s.hidden), 1.5 * from_hidden
        yield f"{layer}.mlp.down_proj.weight", (s.hidden, s.intermediate), 2 * s.intermediate**-0.5
        yield f"{layer}.input_layernorm.weight", (s.hidden,), 0.1
        yield f"{layer}.post_attention_layernorm.weight", (s.hidden,), 0.1
    yield "model.norm.weight", (s.hidden,), 0.1
    if not s.tied:
        yield "lm_head.weight", (s.vocab, s.hidden), 3 * from_hidden


def random_weights(shape: TinyShape, seed: int, perturb: float = 0.0) -> dict[str, Array]:
    """Every tensor from its own stream, so that a deeper or wider model shares what it can.

    `perturb` adds independent noise of that share of each tensor's scale, for a draft: at 0.03 its
    likeliest token is the unperturbed target's about 2 times in 3, at 0.1 about 1 in 4.
    """
    weights: dict[str, Array] = {}
    for name, extents, scale in tensor_shapes(shape):
        key = zlib.crc32(name.encode())
        values = np.random.default_rng([seed, key]).standard_normal(extents) * scale
        if perturb:
            noise = np.random.default_rng([seed, key, 1]).standard_normal(extents)
            values += perturb * scale * noise
        if name.endswith("norm.weight"):
            values += 1
        weights[name] = values.astype(np.float32)
    return weights

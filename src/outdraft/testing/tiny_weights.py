"""Shapes of tiny models, and random weights with which they behave like a language model.

Scales are chosen so that the logits have a standard deviation of about 3: sampling at
temperature 1 has a few bits of entropy, and greedy text depends on its context. Layers write more
into the residual stream than the embedding does, or a tied model would only repeat its last token.
"""

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from outdraft.modelspec import ModelSpec
from outdraft.testing.tiny_tokenizer import TOKENIZER_SIZE

Array = NDArray[np.float32]


def tiny_spec(
    family: str,
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    intermediate: int = 96,
    vocab: int = TOKENIZER_SIZE,
    context: int = 512,
) -> ModelSpec:
    return ModelSpec(
        family=family,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=vocab,
        max_context=context,
        rms_eps=1e-5,
        tie_embeddings=family in ("smollm2", "smollm3"),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )


def _tensors(spec: ModelSpec) -> Iterator[tuple[str, tuple[int, ...], float]]:
    """Name, shape and scale of every tensor; a norm's scale is its spread around one."""
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_rows, kv_rows = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    from_hidden = hidden**-0.5
    yield "model.embed_tokens.weight", (spec.vocab_size, hidden), 3 * from_hidden
    for i in range(spec.num_layers):
        layer = f"model.layers.{i}"
        for name, rows, gain in (("q", q_rows, 1.3), ("k", kv_rows, 1.3), ("v", kv_rows, 1.0)):
            projection = f"{layer}.self_attn.{name}_proj"
            yield f"{projection}.weight", (rows, hidden), gain * from_hidden
            if spec.qkv_bias:
                yield f"{projection}.bias", (rows,), 0.3
        if spec.qk_norm:
            yield f"{layer}.self_attn.q_norm.weight", (spec.head_dim,), 0.2
            yield f"{layer}.self_attn.k_norm.weight", (spec.head_dim,), 0.2
        yield f"{layer}.self_attn.o_proj.weight", (hidden, q_rows), 3 * q_rows**-0.5
        yield f"{layer}.mlp.gate_proj.weight", (inner, hidden), 1.5 * from_hidden
        yield f"{layer}.mlp.up_proj.weight", (inner, hidden), 1.5 * from_hidden
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner), 2 * inner**-0.5
        yield f"{layer}.input_layernorm.weight", (hidden,), 0.1
        yield f"{layer}.post_attention_layernorm.weight", (hidden,), 0.1
    yield "model.norm.weight", (hidden,), 0.1
    if not spec.tie_embeddings:
        yield "lm_head.weight", (spec.vocab_size, hidden), 3 * from_hidden


def random_weights(spec: ModelSpec, seed: int, perturb: float = 0.0) -> dict[str, Array]:
    """Every tensor comes from its own stream, so a deeper model shares the layers that it can.

    `perturb` adds independent noise of that share of each tensor's scale, for a draft: at 0.03 its
    likeliest token is the unperturbed target's about 2 times in 3, at 0.1 about 1 in 4.
    """
    weights: dict[str, Array] = {}
    for name, shape, scale in _tensors(spec):
        key = zlib.crc32(name.encode())
        values = np.random.default_rng([seed, key]).standard_normal(shape) * scale
        if perturb:
            noise = np.random.default_rng([seed, key, 1]).standard_normal(shape)
            values += perturb * scale * noise
        if name.endswith("norm.weight"):
            values += 1
        weights[name] = values.astype(np.float32)
    return weights

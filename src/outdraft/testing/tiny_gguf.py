"""A tiny random model as one GGUF file, in any tensor type, laid out as llama.cpp's converter does.

The block types (Q4_0 … Q8_0) hold the same weights as `tiny_model` with the same seed and sizes,
quantized. The gguf package cannot quantize K types, so those are random super-blocks whose scales
give each tensor the spread it should have.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from outdraft.errors import OptionError, unknown_choice
from outdraft.testing.tiny_tokenizer import (
    BOS_ID,
    CHAT_TEMPLATE,
    CONTROL,
    EOS_ID,
    TOKENIZER_SIZE,
    tiny_vocab,
)
from outdraft.testing.tiny_weights import Array, TinyShape, random_weights

GGUF_FAMILIES = ("llama", "qwen2", "qwen3", "smollm3")
PLAIN_QUANTS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
K_QUANTS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
GGUF_QUANTS = PLAIN_QUANTS + K_QUANTS

# K type → byte of the float16 scale in a super-block, byte of the float16 minimum, minimum / scale
# at which random blocks are centred on zero (their mean quant; the others are signed)
_K_LAYOUT: dict[str, tuple[int, int | None, float]] = {
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0.0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0.0),
}

_BLOCK_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOP_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
}


def tiny_gguf(
    path: Path,
    *,
    quant: str = "Q8_0",
    family: str = "llama",
    seed: int = 0,
    layers: int = 2,
    hidden: int | None = None,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    intermediate: int | None = None,
    vocab: int = TOKENIZER_SIZE,
    context: int = 512,
) -> Path:
    """Write a random model to `path`. Sizes left out are `tiny_model`'s, or 256 for K types."""
    if quant not in GGUF_QUANTS:
        raise unknown_choice("GGUF type", quant, GGUF_QUANTS)
    if family not in GGUF_FAMILIES:
        raise unknown_choice("family", family, GGUF_FAMILIES)
    wide = quant in K_QUANTS  # a K type's rows come in super-blocks of 256
    shape = TinyShape(
        layers=layers,
        hidden=hidden or (256 if wide else 64),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim or (64 if wide else 16),
        intermediate=intermediate or (256 if wide else 96),
        vocab=vocab,
        tied=family == "smollm3",
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(path, family)
    _add_values(writer, shape, context, family)
    _add_tokenizer(writer, shape.vocab)
    for name, values in random_weights(shape, seed).items():
        rows = permute_rows(name, values, shape) if family in ("llama", "smollm3") else values
        _add_tensor(writer, gguf_name(name), rows, quant, [seed, zlib.crc32(name.encode())])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    """llama.cpp's name of a Hugging Face tensor."""
    stem, _, suffix = name.rpartition(".")
    if stem in _TOP_NAMES:
        return f"{_TOP_NAMES[stem]}.{suffix}"
    _, _, layer, part = stem.split(".", 3)  # model.layers.{i}.{part}
    return f"blk.{layer}.{_BLOCK_NAMES[part]}.{suffix}"


def permute_rows(name: str, values: Array, shape: TinyShape) -> Array:
    """Each head's q and k rows from two halves to interleaved pairs, as the converter does."""
    heads = {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2])
    if heads is None:
        return values
    halves = values.reshape(heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)


def random_blocks(
    extents: tuple[int, ...], spread: float, quant: str, seed: list[int]
) -> NDArray[np.uint8]:
    """Valid super-blocks of a K type whose values have mean ~0 and standard deviation `spread`."""
    scale_at, minimum_at, ratio = _K_LAYOUT[quant]
    kind = gguf.GGMLQuantizationType[quant]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if extents[-1] % block:
        raise OptionError(f"{quant} needs rows that are a multiple of {block}, seen {extents[-1]}")
    rows, per_row = int(np.prod(extents[:-1])), extents[-1] // block
    blocks = np.random.default_rng(seed).integers(0, 256, (rows * per_row, size), dtype=np.uint8)

    def set_scale(scale: float) -> None:
        blocks[:, scale_at : scale_at + 2] = _half_bytes(scale)
        if minimum_at is not None:
            blocks[:, minimum_at : minimum_at + 2] = _half_bytes(scale * ratio)

    set_scale(1.0)
    unit_spread = float(gguf.quants.dequantize(blocks, kind).std())
    set_scale(spread / unit_spread)
    return blocks.reshape(*extents[:-1], per_row * size)


def _half_bytes(value: float) -> NDArray[np.uint8]:
    return np.frombuffer(np.float16(value).tobytes(), dtype=np.uint8)


def _add_tensor(
    writer: gguf.GGUFWriter, name: str, values: Array, quant: str, seed: list[int]
) -> None:
    kind = gguf.GGMLQuantizationType[quant]
    if values.ndim == 1:  # norms and biases stay F32 in every file
        writer.add_tensor(name, values)
    elif quant in K_QUANTS:
        blocks = random_blocks(values.shape, float(values.std()), quant, seed)
        writer.add_tensor(name, blocks, raw_dtype=kind)
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)


def _add_values(writer: gguf.GGUFWriter, shape: TinyShape, context: int, family: str) -> None:
    writer.add_name(f"tiny {family}")
    writer.add_context_length(context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(shape.vocab)


def _add_tokenizer(writer: gguf.GGUFWriter, size: int) -> None:
    vocab = tiny_vocab(size)
    padding = [f"[PAD{i}]" for i in range(len(vocab.tokens), size)]
    normal = len(vocab.tokens) - len(CONTROL)
    kinds = gguf.TokenType
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*vocab.tokens, *padding])
    writer.add_token_types(
        [kinds.CONTROL] * len(CONTROL) + [kinds.NORMAL] * normal + [kinds.UNUSED] * len(padding)
    )
    writer.add_token_merges([" ".join(pair) for pair in vocab.merges])
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)

"""A tiny random model as one GGUF file, in any tensor type, laid out as llama.cpp's converter does.

The block types (Q4_0 … Q8_0) hold the same weights as `tiny_model` with the same seed and sizes,
quantized. The gguf package cannot quantize K types, so those are random super-blocks whose scales
give each tensor the spread it should have.
"""

import zlib
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

from outdraft.errors import OptionError, unknown_choice
from outdraft.modelspec.gguf_layout import (
    PERMUTED,
    add_byte_level_bpe,
    add_sizes,
    gguf_name,
    interleave_rows,
)
from outdraft.testing.tiny_tokenizer import BOS_ID, CHAT_TEMPLATE, EOS_ID, tokenizer_files
from outdraft.testing.tiny_weights import random_weights, tiny_spec

GGUF_FAMILIES = ("llama", "qwen2", "qwen3", "smollm3")
PLAIN_QUANTS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0")
# K type → byte of the float16 scale in a super-block, byte of the float16 minimum, and minimum /
# scale at which random blocks are centred on zero: their mean quant, or 0 where quants are signed.
_K_LAYOUT: dict[str, tuple[int, int | None, float]] = {
    "Q2_K": (80, 82, 1.5),
    "Q3_K": (108, None, 0.0),
    "Q4_K": (0, 2, 7.5),
    "Q5_K": (0, 2, 15.5),
    "Q6_K": (208, None, 0.0),
}
K_QUANTS = tuple(_K_LAYOUT)
GGUF_QUANTS = PLAIN_QUANTS + K_QUANTS


def tiny_gguf(
    path: Path, *, quant: str = "Q8_0", family: str = "llama", seed: int = 0, **sizes: int
) -> Path:
    """Write a random model to `path`.

    `sizes` are those of `tiny_spec`. A K type's rows come in super-blocks of 256, so its sizes are
    larger unless they are given.
    """
    if quant not in GGUF_QUANTS:
        raise unknown_choice("GGUF type", quant, GGUF_QUANTS)
    if family not in GGUF_FAMILIES:
        raise unknown_choice("family", family, GGUF_FAMILIES)
    if quant in K_QUANTS:
        sizes = {"hidden": 256, "head_dim": 64, "intermediate": 256, **sizes}
    spec = tiny_spec(family, **sizes)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = gguf.GGMLQuantizationType[quant]
    writer = gguf.GGUFWriter(path, family)
    writer.add_name(f"tiny {family}")
    add_sizes(writer, spec)
    tokenizer = tokenizer_files(spec.vocab_size)["tokenizer.json"]
    add_byte_level_bpe(writer, tokenizer, spec.vocab_size)
    writer.add_bos_token_id(BOS_ID)
    writer.add_eos_token_id(EOS_ID)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, values in random_weights(spec, seed).items():
        if family in PERMUTED:
            values = interleave_rows(name, values, spec.num_heads, spec.num_kv_heads)
        if values.ndim == 1:  # norms and biases stay F32 in every file
            writer.add_tensor(gguf_name(name), values)
            continue
        if quant in K_QUANTS:
            block_seed = [seed, zlib.crc32(name.encode())]
            blocks = _random_blocks(values.shape, float(values.std()), quant, block_seed)
        else:
            blocks = gguf.quants.quantize(values, kind)
        writer.add_tensor(gguf_name(name), blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _random_blocks(
    shape: tuple[int, ...], spread: float, quant: str, seed: list[int]
) -> NDArray[np.uint8]:
    """Valid super-blocks of a K type whose values have mean ~0 and standard deviation `spread`."""
    scale_at, minimum_at, ratio = _K_LAYOUT[quant]
    kind = gguf.GGMLQuantizationType[quant]
    block, size = gguf.GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise OptionError(f"{quant} needs rows that are a multiple of {block}, seen {shape[-1]}")
    rows, per_row = int(np.prod(shape[:-1])), shape[-1] // block
    blocks = np.random.default_rng(seed).integers(0, 256, (rows * per_row, size), dtype=np.uint8)

    def set_scale(scale: float) -> None:
        for at, value in ((scale_at, scale), (minimum_at, scale * ratio)):
            if at is not None:
                blocks[:, at : at + 2] = np.frombuffer(np.float16(value).tobytes(), np.uint8)

    set_scale(1.0)
    unit_spread = float(gguf.quants.dequantize(blocks, kind).std())
    set_scale(spread / unit_spread)
    return blocks.reshape(*shape[:-1], per_row * size)

"""Matrices in ggml's blocks of 32 weights: in a safetensors file `NAME.q4_0` (uint8) is NAME.

For heads that have to be small. Safetensors has no such types, so only this project reads them;
`outdraft export` writes them in bfloat16 for other engines.
"""

from typing import Any

from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

_BLOCK = 32
_BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}
TYPES = tuple(_BLOCK_BYTES)


def packed_type(stored: str) -> str | None:
    """The block type in a stored name, such as q4_0; None for an ordinary tensor."""
    kind = stored.rpartition(".")[2]
    return kind if kind in _BLOCK_BYTES else None


def plain_name(stored: str) -> str:
    return stored if packed_type(stored) is None else stored.rpartition(".")[0]


def plain_shape(stored: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the matrix in the blocks; the same shape if these cannot be blocks."""
    kind = packed_type(stored)
    if kind is None or len(shape) != 2 or shape[1] % _BLOCK_BYTES[kind]:
        return shape
    return shape[0], shape[1] // _BLOCK_BYTES[kind] * _BLOCK


def can_pack(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] % _BLOCK == 0


def pack(matrix: Any, kind: str) -> Any:
    """A float32 array (rows, columns) → uint8 (rows, bytes)."""
    return quantize(matrix, GGMLQuantizationType[kind.upper()])


def unpack(blocks: Any, kind: str) -> Any:
    """uint8 (rows, bytes) → a float32 array (rows, columns)."""
    return dequantize(blocks, GGMLQuantizationType[kind.upper()])

"""Matrices of a safetensors file in ggml's blocks of 32 weights: `NAME.q4_0` (uint8) holds NAME.

For heads that have to be small. The format has no such types, so only this project reads them;
`outdraft export` writes them out in bfloat16 for others.
"""

from __future__ import annotations

from typing import Any

_BLOCK = 32
_BLOCK_BYTES = {"q8_0": 34, "q4_0": 18}
TYPES = tuple(_BLOCK_BYTES)


def packed_type(stored: str) -> str | None:
    """The type of the blocks that a stored name speaks of; None for an ordinary tensor."""
    kind = stored.rpartition(".")[2]
    return kind if kind in _BLOCK_BYTES else None


def plain_name(stored: str) -> str:
    return stored if packed_type(stored) is None else stored.rpartition(".")[0]


def plain_shape(stored: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the matrix that is in the blocks; a shape that no blocks have stays as it is."""
    kind = packed_type(stored)
    if kind is None or len(shape) != 2 or shape[1] % _BLOCK_BYTES[kind]:
        return shape
    return shape[0], shape[1] // _BLOCK_BYTES[kind] * _BLOCK


def can_pack(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2 and shape[1] % _BLOCK == 0


def pack(matrix: Any, kind: str) -> Any:
    """A float32 array (rows, columns) → uint8 (rows, bytes)."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import quantize

    return quantize(matrix, GGMLQuantizationType[kind.upper()])


def unpack(blocks: Any, kind: str) -> Any:
    """uint8 (rows, bytes) → a float32 array (rows, columns)."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    return dequantize(blocks, GGMLQuantizationType[kind.upper()])

"""The header of a GGUF file, read in milliseconds.

`gguf.GGUFReader` makes a numpy object of every token and merge in the file, which takes two seconds
for a small model. Here only plain values and tensors' places are read, and arrays on request.
Layout (little-endian, versions 2 and 3):

    "GGUF" | version u32 | tensors u64 | values u64
    value:  key string | type u32 | scalar, string or array
    tensor: name string | dims u32 | sizes u64 x dims, fastest first | type u32 | offset u64
    padding to the alignment, then the tensors' bytes

A string is a u64 length and its bytes; an array is a type u32, a u64 count and its items.
"""

import math
import mmap
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from outdraft.errors import CorruptFileError, ModelError
from outdraft.modelspec.tensors import TensorEntry, cut_short

# GGUF value type → struct code; 8 is a string, 9 an array
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4

Value = str | int | float | bool | list[str] | list[int] | list[float]


@dataclass(frozen=True, slots=True)
class GgufHeader:
    values: dict[str, Value]
    tensors: dict[str, TensorEntry]  # offsets count from the start of the file

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))


@dataclass(slots=True)
class _Cursor:
    data: mmap.mmap
    at: int

    def scalar(self, code: str) -> int:
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value  # type: ignore[no-any-return]

    def string(self) -> str:
        size = self.scalar("Q")
        end = self.at + size
        if end > len(self.data):
            raise struct.error("string past the end")
        text = self.data[self.at : end].decode("utf-8", errors="replace")
        self.at = end
        return text

    def value(self, kind: int, wanted: bool) -> Value | None:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(wanted)
        return self.scalar(_SCALARS[kind])

    def _array(self, wanted: bool) -> Value | None:
        kind, count = self.scalar("I"), self.scalar("Q")
        if kind in _SCALARS:
            code = f"<{count}{_SCALARS[kind]}"
            start = self.at
            self.at += struct.calcsize(code)
            return list(struct.unpack_from(code, self.data, start)) if wanted else None
        if kind == _STRING and not wanted:
            unpack, data, at = struct.Struct("<Q").unpack_from, self.data, self.at
            for _ in range(count):  # ends in struct.error at the end of the file
                at += 8 + unpack(data, at)[0]
            self.at = at
            return None
        if kind == _STRING:
            return [self.string() for _ in range(count)]
        for _ in range(count):  # arrays of arrays: nothing we read has them
            self._array(wanted=False)
        return None


def read_gguf_header(path: Path, *, arrays: Collection[str] = ()) -> GgufHeader:
    """Read every plain value, every tensor's place, and the arrays named in `arrays`."""
    size = path.stat().st_size
    if size < 24:
        raise cut_short(path, 24, size)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:4] != b"GGUF":
            raise CorruptFileError(f"{path} is not a GGUF file: it starts with {data[:4]!r}")
        cursor = _Cursor(data, at=4)
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise ModelError(f"{path} has GGUF version {version}; versions 2 and 3 can be read")
        try:
            header, end = _read_body(cursor, arrays)
        except (struct.error, KeyError, ValueError, OverflowError, MemoryError) as error:
            raise CorruptFileError(
                f"{path} is cut short or damaged: its header goes wrong at byte {cursor.at}, "
                f"{size} bytes seen; fetch it again"
            ) from error
    expected = max((t.offset + t.num_bytes for t in header.tensors.values()), default=end)
    if size < expected:
        raise cut_short(path, expected, size)
    split = header.values.get("split.count", 1)
    if isinstance(split, int) and split > 1:
        raise ModelError(
            f"{path} is one of {split} parts; merge them with llama-gguf-split --merge"
        )
    return header


def _read_body(cursor: _Cursor, arrays: Collection[str]) -> tuple[GgufHeader, int]:
    num_tensors, num_values = cursor.scalar("Q"), cursor.scalar("Q")
    values: dict[str, Value] = {}
    for _ in range(num_values):
        key = cursor.string()
        value = cursor.value(cursor.scalar("I"), key in arrays)
        if value is not None:
            values[key] = value
    placed: list[tuple[str, tuple[int, ...], int, int]] = []
    for _ in range(num_tensors):
        name = cursor.string()
        num_dims = cursor.scalar("I")
        if num_dims > _MAX_DIMS:
            raise ValueError(f"tensor {name!r} has {num_dims} dimensions")
        dims = [cursor.scalar("Q") for _ in range(num_dims)]
        placed.append((name, tuple(reversed(dims)), cursor.scalar("I"), cursor.scalar("Q")))
    alignment = int(values.get("general.alignment", 32))  # type: ignore[arg-type]
    if alignment <= 0:
        raise ValueError(f"general.alignment is {alignment}")
    start = -(-cursor.at // alignment) * alignment
    tensors = {
        name: TensorEntry(name, *_type_and_bytes(kind, shape), start + offset)
        for name, shape, kind, offset in placed
    }
    return GgufHeader(values, tensors), start


def _type_and_bytes(kind: int, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], int]:
    """A tensor's dtype, shape and bytes; 0 bytes for a type that the gguf package does not know."""
    try:
        dtype = GGMLQuantizationType(kind)
        block, size = GGML_QUANT_SIZES[dtype]
    except (ValueError, KeyError):
        return f"number {kind}", shape, 0
    return str(dtype.name), shape, math.prod(shape) // int(block) * int(size)

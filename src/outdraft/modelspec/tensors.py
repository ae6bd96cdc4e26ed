"""Which tensors a model's files hold: names, types, shapes and sizes, from the headers alone.

A safetensors file is an 8-byte little-endian length, that many bytes of JSON,
then the data. Reading the header by hand costs a few kilobytes of input for a
model of any size, and it lets a file that was cut short be named as such.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError, ModelError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the limit of the format itself


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as a header lists it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int
    offset: int  # of its first byte, counted from the start of the data

    @property
    def num_values(self) -> int:
        return math.prod(self.shape)


def bytes_by_dtype(entries: Iterable[TensorEntry]) -> dict[str, int]:
    """Sum the bytes of each dtype."""
    sums: Counter[str] = Counter()
    for entry in entries:
        sums[entry.dtype] += entry.num_bytes
    return dict(sums)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files of a folder: the one file, or every shard of the index."""
    if (folder / SINGLE).is_file():
        return (folder / SINGLE,)
    index = folder / INDEX
    if not index.is_file():
        raise ModelError(f"no weights in {folder}: neither {SINGLE} nor {INDEX} is there")
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CorruptFileError(f"{index} lacks the key 'weight_map'; fetch it again")
    shards = tuple(folder / name for name in sorted(set(weight_map.values())))
    missing = [shard for shard in shards if not shard.is_file()]
    if missing:
        raise CorruptFileError(
            f"missing shard {missing[0]}: {len(missing)} of the {len(shards)} files that "
            f"{INDEX} names are not there; fetch the model again"
        )
    return shards


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or a CorruptFileError that names the file."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise CorruptFileError(f"{path} is not JSON ({error}); fetch it again") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path} holds a JSON {type(value).__name__}, not an object")
    return value


def read_safetensors_header(path: Path) -> tuple[TensorEntry, ...]:
    """Every tensor of one safetensors file; checks that the file is as long as they need."""
    seen = path.stat().st_size
    with path.open("rb") as file:
        prefix = file.read(8)
        if len(prefix) < 8:
            raise cut_short(path, 8, seen)
        (length,) = struct.unpack("<Q", prefix)
        if length > MAX_HEADER_BYTES:
            raise CorruptFileError(
                f"{path} is not a safetensors file: its header claims {length} bytes, the file "
                f"has {seen}; fetch it again"
            )
        if 8 + length > seen:
            raise cut_short(path, 8 + length, seen)
        raw = file.read(length)
    try:
        entries = tuple(
            _entry(name, value) for name, value in json.loads(raw).items() if name != "__metadata__"
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"{path} has a damaged header ({error!r}); fetch it again"
        ) from error
    expected = 8 + length + max((e.offset + e.num_bytes for e in entries), default=0)
    if seen < expected:
        raise cut_short(path, expected, seen)
    return entries


def _entry(name: str, value: dict[str, Any]) -> TensorEntry:
    begin, end = value["data_offsets"]
    return TensorEntry(name, value["dtype"], tuple(value["shape"]), end - begin, begin)


def cut_short(path: Path, expected: int, seen: int) -> CorruptFileError:
    """The error for a file that ends before its header says it should."""
    return CorruptFileError(
        f"{path} is cut short: expected at least {expected} bytes, seen {seen}; fetch it again"
    )

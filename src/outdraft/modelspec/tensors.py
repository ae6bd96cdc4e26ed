"""Which tensors a model's files hold: names, types, shapes and sizes, from the headers alone.

A safetensors file is an 8-byte little-endian length, that many bytes of JSON,
then the data. Reading the header by hand costs a few kilobytes of input for a
model of any size, and it lets a file that was cut short be named as such.
"""

import json
import math
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from outdraft.errors import CorruptFileError, ModelError
from outdraft.whole_file import read_json

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 100_000_000  # the limit of the format itself


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor as a header lists it."""

    name: str
    dtype: str
    shape: tuple[int, ...]  # rows first, as torch has it
    num_bytes: int
    offset: int  # of its first byte, counted from the start of the data


def stored_sizes(entries: Iterable[TensorEntry], left_out: Collection[str] = ()) -> dict[str, Any]:
    """The sizes in a spec: parameters and their bytes without those `left_out`, bytes of all."""
    counts = {"num_parameters": 0, "parameter_bytes": 0}
    by_dtype: Counter[str] = Counter()
    for entry in entries:
        by_dtype[entry.dtype] += entry.num_bytes
        # Old checkpoints store the rotary frequencies.
        if entry.name not in left_out and not entry.name.endswith("rotary_emb.inv_freq"):
            counts["num_parameters"] += math.prod(entry.shape)
            counts["parameter_bytes"] += entry.num_bytes
    return {**counts, "bytes_by_dtype": dict(by_dtype)}


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
    names = sorted(set(map(str, weight_map.values())))
    for name in names:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts or "\0" in name:
            raise CorruptFileError(f"{index} names a file outside its folder: {name!r}")
    shards = tuple(folder / name for name in names)
    missing = [shard for shard in shards if not shard.is_file()]
    if missing:
        raise CorruptFileError(
            f"missing shard {missing[0]}: {len(missing)} of the {len(shards)} files that "
            f"{INDEX} names are not there; fetch the model again"
        )
    return shards


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
        listed = {name: each for name, each in json.loads(raw).items() if name != "__metadata__"}
        entries = tuple(
            TensorEntry(name, each["dtype"], tuple(each["shape"]), end - begin, begin)
            for name, each in listed.items()
            for begin, end in [each["data_offsets"]]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"{path} has a damaged header ({error!r}); fetch it again"
        ) from error
    expected = 8 + length + max((e.offset + e.num_bytes for e in entries), default=0)
    if seen < expected:
        raise cut_short(path, expected, seen)
    return entries


@contextmanager
def damaged_values(path: Path) -> Iterator[None]:
    """Turn what a missing key or an impossible value raises into an error that names the file."""
    try:
        yield
    except KeyError as error:
        raise CorruptFileError(f"{path} lacks the key {error}; fetch it again") from error
    except (TypeError, ValueError, IndexError, ArithmeticError, AttributeError) as error:
        raise CorruptFileError(
            f"{path} holds a value of the wrong kind ({error}); fetch it again"
        ) from error


def cut_short(path: Path, expected: int, seen: int) -> CorruptFileError:
    """The error for a file that ends before its header says it should."""
    return CorruptFileError(
        f"{path} is cut short: expected at least {expected} bytes, seen {seen}; fetch it again"
    )

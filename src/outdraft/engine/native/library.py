"""The compiled library: which one fits this CPU, its functions and structures.

Structures mirror `step.h` and `draws.h` field by field; those of rounds are in `rounds.py`.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from contextlib import suppress
from ctypes import POINTER, Structure, c_float, c_int, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from outdraft.errors import OutdraftError

FORMATS = {"float32": 0, "bfloat16": 1, "int8": 2, "int4": 3}
GROUP = 32  # inputs that are rounded together
LANES = 16  # numbers of a vector
_DIGEST = 64  # characters


class CProduct(Structure):
    _fields_ = [
        ("format", c_int32),
        ("num_outputs", c_int32),
        ("num_inputs", c_int32),
        ("panels", c_void_p),
        ("bias", c_void_p),
    ]


class CLayer(Structure):
    _fields_ = [
        ("qkv", CProduct),
        ("output", CProduct),
        ("gate_up", CProduct),
        ("down", CProduct),
        ("attention_norm", c_void_p),
        ("mlp_norm", c_void_p),
        ("qk_norm", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("rotates", c_int32),
        ("window", c_int32),
    ]


class CCacheShape(Structure):
    _fields_ = [
        ("num_heads", c_int32),
        ("num_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("num_blocks", c_int32),
        ("is_short", c_int32),
    ]


class CModel(Structure):
    _fields_ = [
        ("hidden_size", c_int32),
        ("intermediate_size", c_int32),
        ("vocab_size", c_int32),
        ("num_layers", c_int32),
        ("cache", CCacheShape),
        ("eps", c_float),
        ("query_scale", c_float),
        ("layers", POINTER(CLayer)),
        ("norm", c_void_p),
        ("head", CProduct),
        ("embedding", CProduct),
        ("first_key", c_int32),
        ("frequencies", c_void_p),
        ("token_norm", c_void_p),
        ("hidden_norm", c_void_p),
        ("norm_before_residual", c_int32),
    ]


class CBatch(Structure):
    _fields_ = [
        ("num_rows", c_int32),
        ("num_runs", c_int32),
        ("num_wanted", c_int32),
        ("num_taps", c_int32),
        ("tokens", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("first_rows", c_void_p),
        ("first_blocks", c_void_p),
        ("tables", c_void_p),
        ("wanted", c_void_p),
        ("taps", c_void_p),
        ("inputs", c_void_p),
        ("features", c_void_p),
        ("hidden", c_void_p),
        ("logits", c_void_p),
    ]


class CDraws(Structure):
    _fields_ = [
        ("logits", c_void_p),
        ("stride", c_int64),
        ("size", c_int32),
        ("num_draws", c_int32),
        ("ids", c_void_p),
        ("rows", c_void_p),
        ("keys", c_void_p),
        ("is_cold", c_void_p),
        ("columns", c_void_p),
        ("margins", c_void_p),
    ]


@cache
def library() -> Any | None:
    """None where this installation has none that runs on this CPU, or $OUTDRAFT_NO_NATIVE is 1."""
    if os.environ.get("OUTDRAFT_NO_NATIVE", "0") not in ("", "0"):
        return None
    folder = Path(__file__).parent
    for level in _levels():
        path = folder / f"step-{level}.so"
        # One that was made for another system cannot be loaded: the same as none.
        with suppress(OSError):
            lib = ctypes.CDLL(str(path))
            _check_sources(lib, folder)
            return _declared(lib)
    return None


def sources_of(lib: Any) -> str:
    """The digest of the sources that a library was made of; "none" where it does not say."""
    try:
        return (ctypes.c_char * _DIGEST).in_dll(lib, "sources_digest").raw.decode()
    except ValueError:
        return "none"


def _check_sources(lib: Any, folder: Path) -> None:
    """With structures of other sources a library writes anywhere. Wheels hold no sources."""
    files = sorted(folder.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    if files and sources_of(lib) != digest:
        raise OutdraftError(
            f"{folder} holds a library of other C sources than those beside it; run `make native`, "
            "or set OUTDRAFT_NO_NATIVE=1 to do without"
        )


# Best first: what a CPU needs for each, as Linux names it.
_NEEDED = {
    "avx512": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_vnni"},
    "avx2": {"avx2", "fma", "bmi1", "bmi2", "f16c", "abm", "movbe"},
    "any": set[str](),
}


def _levels() -> tuple[str, ...]:
    """What this CPU can, best first."""
    flags = _cpu_flags()
    return tuple(level for level, needed in _NEEDED.items() if needed <= flags)


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())


def _declared(lib: Any) -> Any:
    lib.packed_bytes.argtypes = [c_int, c_int, c_int]
    lib.packed_bytes.restype = c_int64
    lib.pack.argtypes = [c_int, c_int, c_int, c_void_p, c_void_p]
    lib.pack.restype = None
    lib.unpack_rows.argtypes = [POINTER(CProduct), c_int32, c_void_p, c_void_p]
    lib.unpack_rows.restype = None
    lib.pool_open.argtypes = [c_int]
    lib.pool_open.restype = c_void_p
    lib.pool_close.argtypes = [c_void_p]
    lib.pool_close.restype = None
    lib.space_open.argtypes = []
    lib.space_open.restype = c_void_p
    lib.space_close.argtypes = [c_void_p]
    lib.space_close.restype = None
    lib.run_step.argtypes = [POINTER(CModel), POINTER(CBatch), c_void_p, c_void_p]
    lib.run_product.argtypes = [POINTER(CProduct), c_int32, c_void_p, c_void_p, c_void_p, c_void_p]
    lib.draw_rows.argtypes = [POINTER(CDraws), c_void_p]
    lib.uniform_row.argtypes = [c_uint64, c_int32, c_void_p]
    lib.uniform_row.restype = None
    return lib

"""Memory for weights in pages of 2 MiB, where the system has them.

A step reads all weights once. In pages of 4 KiB it looks up each page's address anew, which costs
a sixth of its time (`dev/LOG.md`).
"""

from __future__ import annotations

import ctypes
import mmap
import weakref
from contextlib import suppress

import torch
from torch import Tensor

_CHUNK = 64 << 20  # bytes that are mapped at once; what is never written to takes no memory
_ALIGNMENT = 64


class HugePages:
    """Gives out memory from the start of a chunk to its end. A chunk is freed with the last tensor
    in it."""

    def __init__(self) -> None:
        self._chunk: weakref.ref[mmap.mmap] | None = None
        self._used = 0

    def take(self, num_bytes: int) -> Tensor:
        """(num_bytes,) uint8, all 0."""
        chunk = None if self._chunk is None else self._chunk()
        if chunk is None or self._used + num_bytes > len(chunk):
            chunk = _map(max(num_bytes, _CHUNK))
            self._chunk, self._used = weakref.ref(chunk), 0
        taken = torch.frombuffer(chunk, dtype=torch.uint8, count=num_bytes, offset=self._used)
        self._used += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return taken


def _map(num_bytes: int) -> mmap.mmap:
    chunk = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # A system without such pages, or that refuses them here, gives small ones.
    with suppress(OSError, AttributeError):
        chunk.madvise(mmap.MADV_HUGEPAGE)
    return chunk


huge_pages = HugePages()


def return_freed_memory() -> None:
    """To the system, what was freed: after matrices were read and packed, glibc keeps hundreds of
    megabytes for later. Other C libraries have no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

"""What memory this machine has left, and what processes take of it; known on Linux only."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def available_bytes() -> int | None:
    """What could be used without swapping; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def resident_bytes(pids: Iterable[int]) -> int:
    """Of all of them together; those that have ended take nothing."""
    pages = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")

"""Main memory: what can be had here, and what processes take. Read from /proc, on Linux."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

_ROOT = Path("/")
# Files of a control group: its limit, what it uses, and the lines of memory.stat that name what it
# would give back, files that were read before all.
_V2 = ("memory.max", "memory.current", ("inactive_file", "active_file"))
_V1 = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that can be used without swapping, within the limits of the control groups that this
    process is in: a container, a pod. None where the system does not say."""
    sizes = [*_free_of_machine(root), *_free_of_groups(root)]
    return max(min(sizes), 0) if sizes else None


def _free_of_machine(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _free_of_groups(root: Path) -> Iterator[int]:
    """Of each group around this process that has a limit. In a container the groups outside of it
    cannot be seen, and its own is where the file system of the groups begins."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, _, rest = line.partition(":")
            names, _, path = rest.partition(":")
            if number == "0":
                mount, files = root / "sys/fs/cgroup", _V2
            elif "memory" in names.split(","):
                mount, files = root / "sys/fs/cgroup/memory", _V1
            else:
                continue
            own = PurePosixPath(path.lstrip("/"))
            for group in (own, *own.parents):
                yield from _free_of_group(mount / group, *files)


def _free_of_group(
    folder: Path, limit: str, used: str, reclaimed: tuple[str, ...]
) -> Iterator[int]:
    with suppress(OSError, ValueError):  # "max" is no limit
        free = int((folder / limit).read_text()) - int((folder / used).read_text())
        for line in (folder / "memory.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            free += int(value) if name in reclaimed else 0
        yield free


def resident_memory(pids: Iterable[int], root: Path = _ROOT) -> int:
    """Bytes of all these processes together. Pages that several share count once, where the system
    tells (`smaps_rollup`), else once in each."""
    return sum(_memory_of(root / "proc" / str(pid)) for pid in pids)


def _memory_of(process: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    with suppress(OSError, ValueError, IndexError):
        return int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0

"""Whether other programs use the cores while something is measured; on Linux only.

What others took of the cores is read for windows of the clock, which begin and end without regard
to what is measured. So whether a stretch of time counts as busy does not depend on how fast
anything was in it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from outdraft.backends.guard import descendants

_WINDOW_S = 1.0
_LEAST_S = 0.3  # of a core's time that others took in a window: with less nothing is said
_IDLE = 0.25  # of the cores: with more there is room for others
_STOLEN = 0.1  # of the cores' time, that a host gave to other machines


@dataclass(frozen=True, slots=True)
class CoreTimes:
    """Seconds of all cores that we may use, since some moment."""

    used: float
    idle: float
    stolen: float
    own: float  # that our processes used
    num_cores: int = 1


@dataclass(frozen=True, slots=True)
class Window:
    """Of the clock. Seconds of cores."""

    others: float
    idle: float
    stolen: float
    num_cores: int


Read = Callable[[Collection[int]], CoreTimes | None]  # with the ids of our processes


def read_core_times(pids: Collection[int], proc: Path = Path("/proc")) -> CoreTimes | None:
    """None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        tick = 1 / os.sysconf("SC_CLK_TCK")
        cores = [f"cpu{number}" for number in os.sched_getaffinity(0)]
        rows = [line.split() for line in (proc / "stat").read_text().splitlines()]
        times = [[int(each) * tick for each in row[1:9]] for row in rows if row[0] in cores]
        if not times:
            return None
        user, nice, system, idle, waiting, irq, soft, stolen = map(sum, zip(*times, strict=True))
        used = user + nice + system + irq + soft
        own = sum(_used_by(pid, proc) for pid in pids) * tick
        return CoreTimes(used, idle + waiting, stolen, own, len(times))
    return None


def _used_by(pid: int, proc: Path) -> int:
    """Ticks; 0 for a process that has ended."""
    with suppress(OSError, ValueError, IndexError):
        # "pid (name) state parent …": a name may hold anything, brackets too
        rest = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return int(rest[11]) + int(rest[12])
    return 0


def window_between(before: CoreTimes, after: CoreTimes) -> Window:
    used, own = after.used - before.used, after.own - before.own
    return Window(
        others=max(used - own, 0.0),
        idle=after.idle - before.idle,
        stolen=after.stolen - before.stolen,
        num_cores=after.num_cores,
    )


def busy_words(windows: Sequence[tuple[Window, float]]) -> str:
    """What was wrong in the worst of these windows, each with its seconds; empty where nothing
    was."""
    worst = ""
    most = 0.0
    for window, seconds in windows:
        cores_s = window.num_cores * seconds
        is_full = window.idle < _IDLE * cores_s
        if window.stolen >= _STOLEN * max(cores_s, window.num_cores * _WINDOW_S):
            if window.stolen > most:
                most = window.stolen
                worst = f"the host gave {window.stolen / cores_s:.0%} of the cores to others"
        elif window.others >= _LEAST_S and is_full and window.others > most:
            most, used = window.others, window.others / seconds
            worst = f"another program is using the cores ({used:.1f} of {window.num_cores})"
    return worst


class CoreWatch(AbstractContextManager["CoreWatch"]):
    """Looks at the cores while the work inside runs."""

    def __init__(self, read: Read = read_core_times, window_s: float = _WINDOW_S) -> None:
        self._read = read
        self._window_s = window_s
        self._seen: list[tuple[float, CoreTimes]] = []
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._pids: list[int] = []

    def __enter__(self) -> CoreWatch:
        # Engines are started before: their processes stay the same meanwhile.
        self._pids = [os.getpid(), *descendants(os.getpid())]
        self._look()
        if self._seen:
            self._thread = threading.Thread(target=self._watch, name="core-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._look()

    @property
    def words(self) -> str:
        """Why what was measured meanwhile may be slower than it should; else empty."""
        return busy_words([
            (window_between(one, other), seconds)
            for (began, one), (ended, other) in pairwise(self._seen)
            if (seconds := ended - began) > 0
        ])  # fmt: skip

    def _watch(self) -> None:
        while not self._end.wait(self._window_s):
            self._look()

    def _look(self) -> None:
        if (times := self._read(self._pids)) is not None:
            self._seen.append((time.monotonic(), times))


def no_watch() -> CoreWatch:
    """Sees nothing: for servers that are programs of others themselves."""
    return CoreWatch(lambda pids: None)

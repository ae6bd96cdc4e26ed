"""How late the client's own event loop runs, and whether a clock stepped meanwhile.

A client that is too busy reads late, and its lateness looks like the server's. So a beat that
should come every few milliseconds is timed: what it is late by, everything was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

BEAT_NS = 10_000_000
STALL_NS = 5_000_000  # a beat that is later than this is a stall
STEP_NS = 50_000_000  # the wall clock against ours, from one beat to the next
_LOOK_NS = 1_000_000  # two clocks read further apart than this say nothing about each other


@dataclass(frozen=True, slots=True)
class Pulse:
    """Of one client process over one load. Times in nanoseconds."""

    duration_ns: int
    worst_late_ns: int = 0
    stalled_ns: int = 0  # in stalls, all together
    num_stalls: int = 0
    wall_step_ns: int = 0  # what the wall clock was set by; the largest step
    asleep_ns: int = 0  # the machine was suspended
    cpu_ns: int = 0  # that the process used

    @property
    def stalled_share(self) -> float:
        return self.stalled_ns / self.duration_ns if self.duration_ns else 0.0

    @property
    def cpu_share(self) -> float:
        """Of one core."""
        return self.cpu_ns / self.duration_ns if self.duration_ns else 0.0


class ClockWatch:
    """Looks at the clocks together; a step is a jump between them from one look to the next."""

    def __init__(
        self,
        ours: Callable[[], int] = time.perf_counter_ns,
        wall: Callable[[], int] = time.time_ns,
        awake_and_asleep: Callable[[], int] | None = None,
    ) -> None:
        self._ours = ours
        self._wall = wall
        self._boot = awake_and_asleep or _since_boot
        self._offsets: tuple[int, int] | None = None
        self.wall_step_ns = 0
        self.asleep_ns = 0

    def look(self) -> None:
        before = self._ours()
        wall, boot = self._wall(), self._boot()
        if self._ours() - before > _LOOK_NS:
            return
        offsets = (wall - before, boot - before)
        if self._offsets is not None:
            asleep = offsets[1] - self._offsets[1]
            if asleep > STEP_NS:
                self.asleep_ns += asleep
            # The wall goes on while the machine sleeps; that is no step.
            step = offsets[0] - self._offsets[0] - max(asleep, 0)
            if abs(step) > max(STEP_NS, abs(self.wall_step_ns)):
                self.wall_step_ns = step
        self._offsets = offsets


class Heartbeat:
    """`async with Heartbeat() as heart: …; heart.pulse`."""

    def __init__(self, clocks: ClockWatch | None = None) -> None:
        self._clocks = clocks or ClockWatch()
        self._task: asyncio.Task[None] | None = None
        self._started_ns = 0
        self._ended_ns = 0
        self._cpu_ns = 0
        self._worst_ns = 0
        self._stalled_ns = 0
        self._num_stalls = 0

    async def __aenter__(self) -> Heartbeat:
        self._clocks.look()
        self._started_ns = time.perf_counter_ns()
        self._cpu_ns = time.process_time_ns()
        self._task = asyncio.create_task(self._beat(), name="heartbeat")
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._clocks.look()
        self._ended_ns = time.perf_counter_ns()
        self._cpu_ns = time.process_time_ns() - self._cpu_ns

    @property
    def pulse(self) -> Pulse:
        """When it has ended."""
        return Pulse(
            duration_ns=self._ended_ns - self._started_ns,
            worst_late_ns=self._worst_ns,
            stalled_ns=self._stalled_ns,
            num_stalls=self._num_stalls,
            wall_step_ns=self._clocks.wall_step_ns,
            asleep_ns=self._clocks.asleep_ns,
            cpu_ns=self._cpu_ns,
        )

    async def _beat(self) -> None:
        while True:
            due = time.perf_counter_ns() + BEAT_NS
            await asyncio.sleep(BEAT_NS / 1e9)
            late = time.perf_counter_ns() - due
            self._worst_ns = max(self._worst_ns, late)
            if late > STALL_NS:
                self._stalled_ns += late
                self._num_stalls += 1
            self._clocks.look()


def _since_boot() -> int:
    """Our clock does not run while the machine sleeps; this one does, where there is one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.perf_counter_ns() if clock is None else time.clock_gettime_ns(clock)

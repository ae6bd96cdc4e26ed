"""How late the client's own event loop runs, and whether a clock was set meanwhile.

A client that is too busy reads late, and its lateness looks like the server's. So a task wakes up
every few milliseconds and measures how late it is: everything else was as late.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

BEAT_NS = 10_000_000
STALL_NS = 5_000_000  # a beat that is later than this is a stall
STEP_NS = 50_000_000  # of one clock against another, from one beat to the next
_MAX_READING_NS = 1_000_000  # clocks read further apart than this cannot be compared


@dataclass(slots=True)
class Pulse:
    """Of one client process over one load. Times in nanoseconds."""

    duration_ns: int = 0
    worst_late_ns: int = 0
    stalled_ns: int = 0  # in all stalls together
    num_stalls: int = 0
    wall_step_ns: int = 0  # the largest step by which the wall clock was set
    asleep_ns: int = 0  # while the machine was suspended
    cpu_ns: int = 0  # used by the process

    @property
    def stalled_share(self) -> float:
        return self.stalled_ns / self.duration_ns if self.duration_ns else 0.0

    @property
    def cpu_share(self) -> float:
        """Of one core."""
        return self.cpu_ns / self.duration_ns if self.duration_ns else 0.0


def _since_boot() -> int:
    """Unlike ours, this clock runs while the machine is suspended; ours if there is no such one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.perf_counter_ns() if clock is None else time.clock_gettime_ns(clock)


class ClockWatch:
    """Reads the clocks together; a step is a jump of one against another between two readings."""

    def __init__(
        self,
        ours: Callable[[], int] = time.perf_counter_ns,
        wall: Callable[[], int] = time.time_ns,
        boot: Callable[[], int] = _since_boot,
    ) -> None:
        self._ours, self._wall, self._boot = ours, wall, boot
        self._offsets: tuple[int, int] | None = None
        self.wall_step_ns = 0
        self.asleep_ns = 0

    def look(self) -> None:
        before = self._ours()
        wall, boot = self._wall(), self._boot()
        if self._ours() - before > _MAX_READING_NS:
            return
        offsets = (wall - before, boot - before)
        if self._offsets is not None:
            asleep = offsets[1] - self._offsets[1]
            if asleep > STEP_NS:
                self.asleep_ns += asleep
            # The wall clock goes on while the machine is suspended; that is no step.
            step = offsets[0] - self._offsets[0] - max(asleep, 0)
            if abs(step) > max(STEP_NS, abs(self.wall_step_ns)):
                self.wall_step_ns = step
        self._offsets = offsets


class Heartbeat:
    """`async with Heartbeat() as heart: …`; then `heart.pulse` is complete."""

    def __init__(self) -> None:
        self._clocks = ClockWatch()
        self._task: asyncio.Task[None] | None = None
        self.pulse = Pulse()

    async def __aenter__(self) -> Heartbeat:
        self._clocks.look()
        self.pulse.duration_ns = -time.perf_counter_ns()
        self.pulse.cpu_ns = -time.process_time_ns()
        self._task = asyncio.create_task(self._beat(), name="heartbeat")
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._clocks.look()
        self.pulse.duration_ns += time.perf_counter_ns()
        self.pulse.cpu_ns += time.process_time_ns()
        self.pulse.wall_step_ns = self._clocks.wall_step_ns
        self.pulse.asleep_ns = self._clocks.asleep_ns

    async def _beat(self) -> None:
        pulse = self.pulse
        while True:
            due = time.perf_counter_ns() + BEAT_NS
            await asyncio.sleep(BEAT_NS / 1e9)
            late = time.perf_counter_ns() - due
            pulse.worst_late_ns = max(pulse.worst_late_ns, late)
            if late > STALL_NS:
                pulse.stalled_ns += late
                pulse.num_stalls += 1
            self._clocks.look()

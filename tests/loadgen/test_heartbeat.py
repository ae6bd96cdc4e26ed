from __future__ import annotations

import asyncio
import time

from outdraft.loadgen.heartbeat import ClockWatch, Heartbeat, Pulse

S = 1_000_000_000


class Clocks:
    def __init__(self) -> None:
        self.ours = self.wall = self.boot = 0

    def watch(self) -> ClockWatch:
        return ClockWatch(lambda: self.ours, lambda: self.wall, lambda: self.boot)

    def go_on(self, ns: int, *, asleep: int = 0, set_by: int = 0) -> None:
        self.ours += ns
        self.boot += ns + asleep
        self.wall += ns + asleep + set_by


def test_clocks_that_agree() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for _ in range(5):
        watch.look()
        clocks.go_on(10_000_000, set_by=3_000)  # the wall clock is slewed, not set
    assert (watch.wall_step_ns, watch.asleep_ns) == (0, 0)


def test_the_largest_step_of_the_wall_clock() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for step in (0, 2 * S, -5 * S, S):
        clocks.go_on(10_000_000, set_by=step)
        watch.look()
    assert (watch.wall_step_ns, watch.asleep_ns) == (-5 * S, 0)


def test_a_machine_that_slept() -> None:
    clocks = Clocks()
    watch = clocks.watch()
    for asleep in (0, 3 * S, 2 * S, 0):
        clocks.go_on(10_000_000, asleep=asleep)
        watch.look()
    assert (watch.wall_step_ns, watch.asleep_ns) == (0, 5 * S)


def test_readings_too_far_apart_say_nothing() -> None:
    times = iter([0, 10, 20, 2 * S, 2 * S + 10, 2 * S + 20])
    walls = iter([0, 9 * S, 2 * S])
    watch = ClockWatch(lambda: next(times), lambda: next(walls), lambda: 0)
    watch.look()
    watch.look()  # two seconds between its two readings of our clock
    assert watch.wall_step_ns == 0


def test_a_stall_is_measured() -> None:
    async def stalled() -> Pulse:
        async with Heartbeat() as heart:
            await asyncio.sleep(0.05)
            time.sleep(0.2)
            await asyncio.sleep(0.05)
        return heart.pulse

    pulse = asyncio.run(stalled())
    assert pulse.worst_late_ns > 0.15 * S
    assert pulse.num_stalls >= 1
    assert 0.3 < pulse.stalled_share <= 1
    assert pulse.duration_ns >= 0.3 * S
    assert 0 <= pulse.cpu_share < 1


def test_the_real_clocks_are_looked_at() -> None:
    watch = ClockWatch()
    watch.look()
    watch.look()
    assert (watch.wall_step_ns, watch.asleep_ns) == (0, 0)

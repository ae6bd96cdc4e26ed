"""What a server says of itself while a load runs: its KV cache in use and its running requests.

Gauges say nothing once the load is over, so they are polled in a thread: evenly, and no more often
than needed, because a page of metrics takes time from a server that is busy answering.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from outdraft.measure.plateau import find_plateau, is_lead
from outdraft.observe import RemoteServer, read_gauges
from outdraft.records import Record

RUNNING = "running_requests"
POLL_S = 1.0
_SHORTEST_POLL_S, _POLLS = 0.05, 8  # so many in a load of less than `_POLLS` seconds
_IDLE_POLL_S, _IDLE_LIMIT_S = 0.02, 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    at_ns: int  # by the clock of records
    name: str
    value: float


def poll_seconds(load_s: float) -> float:
    """From one poll to the next, in a load that takes so long."""
    return min(max(load_s / _POLLS, _SHORTEST_POLL_S), POLL_S)


@contextmanager
def polled_gauges(server: RemoteServer, every_s: float = POLL_S) -> Iterator[list[Sample]]:
    """All samples, once the load is over. Polling ends at once if the server has no gauges."""
    samples: list[Sample] = []
    is_over = threading.Event()

    def poll() -> None:
        next_s = time.monotonic()
        while True:
            next_s = max(next_s + every_s, time.monotonic() + every_s / 2)  # where pages are slow
            if is_over.wait(next_s - time.monotonic()):
                return
            gauges = read_gauges(server.metrics())
            if not gauges and not samples:
                return
            now = time.perf_counter_ns()
            samples.extend(Sample(now, *each) for each in gauges.items())

    thread = threading.Thread(target=poll, name="gauges", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        is_over.set()
        thread.join()


def counted_time(records: Sequence[Record]) -> tuple[int, int] | None:
    """Nanoseconds from and to which gauges count in a block of one arm: its plateau. One that needs
    no leads counts from the time its first request was due to the end of its last. None where a
    plateau was wanted and there is none."""
    if plateau := find_plateau(records):
        return plateau.start_ns, plateau.end_ns
    counted = [each for each in records if not each.is_warmup]
    if not counted or any(map(is_lead, records)):
        return None
    start = min(each.scheduled_ns for each in counted)
    return start, max(each.last_ns or each.scheduled_ns for each in counted)


def mean_between(samples: Sequence[Sample], name: str, start_ns: int, end_ns: int) -> float | None:
    """Of one gauge over this time; None where nobody looked in it. A sample stands for the time
    that is nearer to it than to the others, so how evenly they came does not matter."""
    own = [each for each in samples if each.name == name and start_ns <= each.at_ns <= end_ns]
    if not own:
        return None
    if end_ns == start_ns:
        return own[0].value
    middles = [(one.at_ns + two.at_ns) / 2 for one, two in pairwise(own)]
    edges = [start_ns, *middles, end_ns]
    weights = [after - before for before, after in pairwise(edges)]
    parts = (each.value * weight for each, weight in zip(own, weights, strict=True))
    return sum(parts) / (end_ns - start_ns)


def while_counting(samples: Sequence[Sample], records: Sequence[Record]) -> list[Sample]:
    """Those of the time that counts; all, where nobody looked in it."""
    start, end = counted_time(records) or (0, -1)
    return [each for each in samples if start <= each.at_ns <= end] or list(samples)


def means_and_peaks(
    samples: Sequence[Sample], time: tuple[int, int] | None = None
) -> dict[str, float]:
    """`NAME_mean` and `NAME_max` of every name. Means are of this time; without one, or without
    samples in it, every sample counts the same."""
    found: dict[str, float] = {}
    for name in {each.name for each in samples}:
        values = [each.value for each in samples if each.name == name]
        mean = None if time is None else mean_between(samples, name, *time)
        found |= {
            f"{name}_max": max(values),
            f"{name}_mean": sum(values) / len(values) if mean is None else mean,
        }
    return found


def wait_until_idle(server: RemoteServer) -> None:
    """Abandoned requests end when a server notices, which takes it a step or two. Until then they
    would be in the way of whatever comes next. Gives up soon: others may be using it."""
    until = time.monotonic() + _IDLE_LIMIT_S
    while read_gauges(server.metrics()).get(RUNNING) and time.monotonic() < until:
        time.sleep(_IDLE_POLL_S)

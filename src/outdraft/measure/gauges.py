"""What a server says of itself while a load runs: its KV cache in use and its running requests.

Gauges say nothing once the load is over, so they are polled in a thread.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from outdraft.observe import RemoteServer, read_gauges
from outdraft.records import Record

RUNNING = "running_requests"
_FIRST_POLL_S, _POLL_S = 0.05, 0.5  # frequent at first, so that a short load is seen too
_IDLE_POLL_S, _IDLE_LIMIT_S = 0.02, 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    at_ns: int  # by the clock of records
    name: str
    value: float


@contextmanager
def polled_gauges(server: RemoteServer) -> Iterator[list[Sample]]:
    """All samples, once the load is over. Polling ends at once if the server has no gauges."""
    samples: list[Sample] = []
    is_over = threading.Event()

    def poll() -> None:
        pause_s = _FIRST_POLL_S
        while not is_over.wait(pause_s):
            pause_s = min(2 * pause_s, _POLL_S)
            gauges = read_gauges(server.metrics())
            if not gauges:
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


def while_counting(samples: Sequence[Sample], records: Sequence[Record]) -> list[Sample]:
    """Those from the time the first counted request was due to the end of the last."""
    counted = [each for each in records if not each.is_warmup]
    if not counted:
        return []
    start = min(each.scheduled_ns for each in counted)
    end = max(each.last_ns or each.scheduled_ns for each in counted)
    return [each for each in samples if start <= each.at_ns <= end]


def means_and_peaks(samples: Sequence[Sample]) -> dict[str, float]:
    """`NAME_mean` and `NAME_max` of every name."""
    found: dict[str, float] = {}
    for name in {each.name for each in samples}:
        values = [each.value for each in samples if each.name == name]
        found |= {f"{name}_max": max(values), f"{name}_mean": sum(values) / len(values)}
    return found


def wait_until_idle(server: RemoteServer) -> None:
    """Abandoned requests end when a server notices, which takes it a step or two. Until then they
    would be in the way of whatever comes next. Gives up soon: others may be using it."""
    until = time.monotonic() + _IDLE_LIMIT_S
    while read_gauges(server.metrics()).get(RUNNING) and time.monotonic() < until:
        time.sleep(_IDLE_POLL_S)

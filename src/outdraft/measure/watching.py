"""What a server's gauges did while a load ran: they say nothing once it is over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.server import metrics_of
from outdraft.metrics_page import kv_usage

_FIRST_S, _EVERY_S = 0.05, 1.0  # looks are close at first: a short load is seen too


@dataclass(slots=True)
class Seen:
    """KV cache usage, 0 to 1, at one look after another."""

    usages: list[float] = field(default_factory=list)

    def to_metrics(self) -> dict[str, float]:
        if not self.usages:
            return {}
        return {
            "kv_cache_usage_max": max(self.usages),
            "kv_cache_usage_mean": sum(self.usages) / len(self.usages),
        }


@contextmanager
def watching(endpoint: Endpoint) -> Iterator[Seen]:
    """Looks every so often, in a thread; a server without such a gauge is asked only once."""
    seen, over = Seen(), threading.Event()

    def look() -> None:
        pause_s = _FIRST_S
        while not over.wait(pause_s):
            pause_s = min(2 * pause_s, _EVERY_S)
            usage = kv_usage(metrics_of(endpoint))
            if usage is None:
                return
            seen.usages.append(usage)

    thread = threading.Thread(target=look, name="gauges", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()

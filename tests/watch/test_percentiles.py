"""Percentiles of a watch are those of the server's requests, to a bucket, on a page that a real
Prometheus client writes; and what a client measures of the same requests can be in the next one."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from outdraft.observe.reading import reading_of
from outdraft.stats.percentiles import percentile
from outdraft.watch.snapshot import Quantiles
from outdraft.watch.watch import Watch, WatchRules

NAMES = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
}
TYPICAL_S = {"ttft": 0.12, "tpot": 0.02, "e2e": 0.3}
PAGE = (Path(__file__).parents[1] / "observe" / "vllm_0_32.txt").read_text()
QUANTILES = (0.50, 0.90, 0.99)
BEGIN = 1_800_000_000.0
LATE_S = 0.015  # of an answer at its client, on average; 9 to 18 ms on a real vLLM


def buckets_of(name: str) -> list[float]:
    """vLLM's own."""
    found = re.findall(rf'^{name}_bucket{{.*le="([0-9.e+-]+)"', PAGE, re.MULTILINE)
    return sorted({float(each) for each in found})


def watched(times: dict[str, np.ndarray], num_looks: int) -> dict[str, Quantiles]:
    """By a watch that looks while requests end, and began when others had ended already."""
    registry = CollectorRegistry()
    tokens = Counter("vllm:generation_tokens", "t", registry=registry)
    histograms = {
        kind: Histogram(name, "h", buckets=buckets_of(name), registry=registry)
        for kind, name in NAMES.items()
    }
    for histogram in histograms.values():
        histogram.observe(9.0)
    watch = Watch(WatchRules(), now=BEGIN)
    parts = {kind: np.array_split(every, num_looks) for kind, every in times.items()}
    for at in range(num_looks + 1):
        now = BEGIN + 5.0 * at
        snapshot = watch.look({"a": reading_of(generate_latest(registry).decode(), now)}, now)
        for kind, histogram in histograms.items() if at < num_looks else ():
            for seconds in parts[kind][at]:
                histogram.observe(float(seconds))
                tokens.inc()
    window = snapshot.replicas[0].window
    assert window is not None
    return dict(window.times)


def compared(
    found: dict[str, Quantiles], times: dict[str, np.ndarray]
) -> Iterator[tuple[float, float, float]]:
    """(lower bound, upper bound, the request's own time) of each percentile."""
    for kind, every in times.items():
        bounds = buckets_of(NAMES[kind])
        shown: Sequence[float | None] = (found[kind].p50, found[kind].p90, found[kind].p99)
        assert found[kind].count == len(every)
        for q, seen in zip(QUANTILES, shown, strict=True):
            assert seen is not None
            at = bisect_left(bounds, seen)
            real = percentile(every.tolist(), q, method="inverted_cdf")
            yield (bounds[at - 1] if at else 0.0), bounds[at], real


def test_a_percentile_is_in_the_servers_bucket_and_a_client_may_be_above() -> None:
    num_outside = num_compared = 0
    for seed in range(40):
        draw = np.random.default_rng(seed)
        times = {
            kind: typical * np.exp(draw.normal(0, 0.6, 40)) for kind, typical in TYPICAL_S.items()
        }
        found = watched(times, num_looks=int(draw.integers(1, 12)))
        for low, high, real in compared(found, times):
            assert low < real <= high
        late = {kind: draw.exponential(LATE_S, 40) for kind in ("ttft", "e2e")}
        at_client = {kind: times[kind] + each for kind, each in late.items()}
        for low, high, real in compared({kind: found[kind] for kind in late}, at_client):
            num_compared += 1
            num_outside += not low < real <= high
            assert low < real  # never below
            assert real <= high + max(float(each.max()) for each in late.values())
    # As with a real vLLM, where one of 54 was above: its requests were 18 ms late on average.
    assert 0 < num_outside < 0.25 * num_compared

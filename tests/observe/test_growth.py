"""Growths of a server that counts, restarts and leaves things out: nothing is counted twice."""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.acceptance import Acceptance
from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import Growth, Reading, carried, growth, read_page

NAMES = ("num_tokens", "num_requests", "num_preemptions", "decode_seconds")


class Server:
    """A process that counts."""

    def __init__(self, rng: random.Random, has_start_time: bool) -> None:
        self.rng = rng
        self.has_start_time = has_start_time
        self.at = 1e9
        self.start()

    def start(self) -> None:
        self.started_at = self.at
        self.counters: Counter[str] = Counter()
        self.seen: list[float] = []
        self.slice = [0, 0]
        self.acceptance = Acceptance()
        self.bounds = self.rng.choice([(0.1, 1.0, math.inf), (0.1, 0.5, math.inf)])

    def work(self) -> None:
        for name in NAMES:
            amount = self.rng.choice([0, 1, self.rng.randrange(1000)])
            self.counters[name] += amount
        for _ in range(self.rng.randrange(4)):
            self.seen.append(self.rng.choice([0.05, 0.3, 0.9, 7.0]))
        for _ in range(self.rng.randrange(3)):
            self.acceptance.record(4, self.rng.randrange(5))
        self.slice = [self.slice[0] + self.rng.randrange(9), self.slice[1] + self.rng.randrange(9)]

    def reading(self) -> Reading:
        return self.without_some(self.whole_reading())

    def whole_reading(self) -> Reading:
        counts = [0.0] * len(self.bounds)
        for value in self.seen:
            counts[bisect_left(self.bounds, value)] += 1
        return Reading(
            self.at,
            "outdraft",
            {name: float(self.counters[name]) for name in NAMES},
            {"running_requests": float(self.rng.randrange(9))},
            {"ttft": Histogram(self.bounds, tuple(counts), math.fsum(self.seen))},
            Acceptance.total([self.acceptance]),
            self.started_at if self.has_start_time else None,
            slices={("plain", "1"): (float(self.slice[0]), float(self.slice[1]))},
        )

    def without_some(self, reading: Reading) -> Reading:
        """A page may lack anything for a while."""
        if self.rng.random() < 0.2:
            kept = {
                name: value for name, value in reading.counters.items() if self.rng.random() < 0.7
            }
            reading = replace(reading, counters=kept)
        if self.rng.random() < 0.1:
            reading = replace(reading, times={}, slices={})
        if self.rng.random() < 0.1:
            reading = replace(reading, acceptance=None)
        return reading


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 40), st.booleans())
def test_without_restarts_growths_add_up_to_the_whole(
    seed: int, steps: int, has_start_time: bool
) -> None:
    server = Server(random.Random(seed), has_start_time)
    server.work()
    first = base = server.reading()
    growths = []
    for step in range(steps):
        server.at += 5
        server.work()
        reading = server.whole_reading() if step == steps - 1 else server.reading()
        growths.append(growth(base, reading))
        base = carried(base, reading)
    total, whole = Growth.total(growths), growth(first, base)
    assert total is not None
    assert (total.start, total.end, total.num_restarts) == (whole.start, whole.end, 0)
    assert total.counters == whole.counters
    assert total.slices == whole.slices
    assert {name: each.counts for name, each in total.times.items()} == {
        name: each.counts for name, each in whole.times.items()
    }
    assert total.acceptance == whole.acceptance


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 40))
def test_through_restarts_nothing_is_counted_twice(seed: int, steps: int) -> None:
    """What was counted between the last look and a restart is lost; all the rest is there once."""
    rng = random.Random(seed)
    server = Server(rng, has_start_time=True)
    base = server.whole_reading()
    growths = []
    expected: Counter[str] = Counter()
    observations = drafts = restarts = 0
    for _ in range(steps):
        server.at += 5
        before = Counter(server.counters), len(server.seen), server.acceptance.num_drafts
        if rng.random() < 0.2:
            server.start()
            restarts += 1
            before = Counter(), 0, 0
        server.work()
        expected.update({name: server.counters[name] - before[0][name] for name in NAMES})
        observations += len(server.seen) - before[1]
        drafts += server.acceptance.num_drafts - before[2]
        reading = server.whole_reading()
        growths.append(growth(base, reading))
        base = carried(base, reading)
    total = Growth.total(growths)
    assert total is not None
    assert total.num_restarts == restarts
    assert total.counters == {name: expected[name] for name in NAMES}
    assert total.times["ttft"].count == observations
    assert total.acceptance is not None
    assert total.acceptance.num_drafts == drafts


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 40))
def test_whatever_a_page_says_nothing_is_negative(seed: int, steps: int) -> None:
    """Restarts without a start time, metrics that come and go, other bounds."""
    rng = random.Random(seed)
    server = Server(rng, has_start_time=False)
    base = server.reading()
    for _ in range(steps):
        server.at += rng.choice([0, 5])
        if rng.random() < 0.2:
            server.start()
        server.work()
        reading = server.reading()
        grown = growth(base, reading)
        base = carried(base, reading)
        assert min(grown.counters.values(), default=0) >= 0
        assert all(min(each.counts) >= 0 for each in grown.times.values())
        assert all(min(each) >= 0 for each in grown.slices.values())
        if grown.acceptance is not None:
            counts = grown.acceptance
            assert min(counts.num_drafts, counts.num_draft_tokens, counts.num_accepted_tokens) >= 0


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 1000)), min_size=2, max_size=30))
def test_a_mean_of_a_gauge_is_between_its_values(looks: list[tuple[float, float]]) -> None:
    at, readings = 0.0, []
    for passed, value in looks:
        at += passed
        readings.append(Reading(at, "vllm", {}, {"running_requests": value}))
    growths = [growth(a, b) for a, b in pairwise(readings)]
    total = Growth.total(growths)
    assert total is not None
    mean = total.gauge("running_requests")
    assert mean is not None
    seen = [value for _, value in looks]
    assert min(seen) - 1e-6 <= mean <= max(seen) + 1e-6
    area = sum(each.gauge_seconds["running_requests"] for each in growths)
    assert mean * total.seconds == pytest.approx(area)


def test_a_new_gauge_and_one_that_is_gone() -> None:
    before = Reading(0.0, "vllm", {}, {"running_requests": 4.0})
    after = Reading(10.0, "vllm", {}, {"kv_cache_usage": 0.5})
    grown = growth(before, after)
    assert grown.gauge("kv_cache_usage") == 0.5
    assert grown.gauge("running_requests") is None


def test_other_buckets_are_another_process() -> None:
    before = Reading(
        0.0, "vllm", {"num_tokens": 50.0}, {}, {"ttft": Histogram((1, math.inf), (9, 0), 3)}
    )
    after = Reading(
        5.0, "vllm", {"num_tokens": 60.0}, {}, {"ttft": Histogram((2, math.inf), (9, 9), 3)}
    )
    grown = growth(before, after)
    assert (grown.num_restarts, grown.counters) == (1, {"num_tokens": 60})
    assert grown.times["ttft"].count == 18


@given(st.dictionaries(st.sampled_from([
    "vllm:generation_tokens_total", "vllm:kv_cache_usage_perc", "outdraft:x",
    'vllm:time_to_first_token_seconds_bucket{le="1"}', "vllm:spec_decode_num_draft_tokens_total",
    'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="99999"}',
    'outdraft:request_acceptance_rate_bucket{le="1"}', "sglang:spec_num_draft_tokens",
    'outdraft:decode_tokens_total{side="plain"}', "sglang:spec_verify_calls_total",
    "llamacpp:tokens_predicted_total", "process_start_time_seconds",
]), st.floats(-1e17, 1e17)))  # fmt: skip
def test_any_page_has_a_reading_and_a_growth(page: dict[str, float]) -> None:
    reading = read_page(page, 1.0)
    assert growth(read_page({}, 0.0), reading).end == 1
    assert growth(reading, replace(reading, at=2.0)).end == 2
    assert carried(reading, reading) == reading

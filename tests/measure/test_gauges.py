from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import pytest

from outdraft.measure import gauges
from outdraft.measure.gauges import (
    Sample,
    counted_time,
    mean_between,
    poll_seconds,
    polled_gauges,
    wait_until_idle,
)
from outdraft.measure.running import running_in
from outdraft.observe import RemoteServer
from outdraft.testing.fake_server import FakeServer

from .made import done, failed

MS = 1_000_000


SLOTS = 8
LEADS = [done(n - SLOTS, at=0, e2e=50 * (n + 1), ttft=40, is_warmup=True) for n in range(SLOTS)]
COUNTED = [done(n, at=50 * (n + 1), e2e=400) for n in range(40)]  # due from 50 to 2,000 ms


def looks(*values: tuple[int, float]) -> list[Sample]:
    """Milliseconds and how many requests run then."""
    return [Sample(at * MS, gauges.RUNNING, value) for at, value in values]


def test_a_block_without_leads_counts_from_its_first_request_to_its_end() -> None:
    counted = [done(n, at=100 + 50 * n, e2e=100) for n in range(3)]
    warmup = done(-1, e2e=400, is_warmup=True, block=-1)
    assert counted_time([warmup, *counted]) == (100 * MS, 300 * MS)
    assert counted_time([warmup, *counted, failed(9)]) == (0, 300 * MS), "from the failed one"
    assert counted_time([warmup]) is None


def test_where_a_plateau_was_wanted_gauges_count_on_it_alone() -> None:
    assert counted_time([*LEADS, *COUNTED]) == (50 * MS, 2000 * MS)
    late = replace(LEADS[-1], first_ns=300 * MS)
    assert counted_time([*LEADS[:-1], late, *COUNTED]) == (300 * MS, 2000 * MS)
    assert counted_time([*LEADS, *COUNTED[:1]]) is None, "nothing ended on it"


def test_slots_that_are_being_filled_do_not_count() -> None:
    """The first counted request is due when the first lead has ended, which is short; the others
    may still be read then."""
    late = [replace(each, first_ns=500 * MS) for each in LEADS[1:]]
    block = [LEADS[0], *late, *COUNTED]
    ramp = looks((60, 1), (150, 2), (300, 4), (499, 5))
    full = looks((600, 8), (1600, 8))
    ends = looks((2100, 3), (2300, 1))
    assert running_in([*ramp, *full, *ends], block) == SLOTS
    assert running_in([*ramp, *ends], block) is None, "nobody looked"


def test_a_sample_stands_for_the_time_that_is_nearest_to_it() -> None:
    """Many looks in a second of little are one second of little."""
    many = looks(*((at, 2.0) for at in range(1, 1000, 10)))
    few = looks((1000, 2.0), (1010, 6.0), (2000, 6.0), (3000, 6.0))
    mean = mean_between([*many, *few], gauges.RUNNING, 0, 3000 * MS)
    assert mean == pytest.approx((1005 * 2 + 1995 * 6) / 3000)
    assert mean_between(many, "another", 0, 3000 * MS) is None


def test_polls_are_rare_and_enough() -> None:
    assert [poll_seconds(each) for each in (100, 8, 4, 0.01)] == [1, 1, 0.5, 0.05]


def test_a_server_is_asked_while_a_load_runs() -> None:
    with FakeServer() as server:
        server.metrics.num_running = 3
        began = time.perf_counter_ns()
        with polled_gauges(RemoteServer(server.url), 0.05) as samples:
            time.sleep(0.32)
    running = [each for each in samples if each.name == gauges.RUNNING]
    assert 2 <= len(running) <= 6, "evenly, and not at once"
    assert {each.value for each in running} == {3}
    assert all(began < each.at_ns < time.perf_counter_ns() for each in running)


def test_a_server_without_gauges_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(RemoteServer, "metrics", lambda server: asked.append(0) or {})
    with polled_gauges(RemoteServer("http://nobody"), 0.05) as samples:
        time.sleep(0.3)
    wait_until_idle(RemoteServer("http://nobody"))
    assert samples == []
    assert len(asked) == 2


def test_one_page_that_did_not_come_does_not_end_the_polling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page, asked = {"vllm:num_requests_running": 5.0}, list[int]()

    def metrics(server: RemoteServer) -> dict[str, float]:
        asked.append(0)
        return {} if len(asked) == 2 else page

    monkeypatch.setattr(RemoteServer, "metrics", metrics)
    with polled_gauges(RemoteServer("http://busy"), 0.02) as samples:
        time.sleep(0.2)
    assert len(samples) == len(asked) - 1 > 2


def test_pages_that_come_slowly_are_not_asked_for_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    def metrics(server: RemoteServer) -> dict[str, float]:
        asked.append(time.monotonic())
        time.sleep(0.1)
        return {"vllm:num_requests_running": 5.0}

    monkeypatch.setattr(RemoteServer, "metrics", metrics)
    with polled_gauges(RemoteServer("http://busy"), 0.1):
        time.sleep(0.8)
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(gaps) >= 2
    assert min(gaps) >= 0.14


def test_waiting_for_abandoned_requests_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    left = [2.0, 1.0, 0.0]
    page = {"vllm:num_requests_running": 5.0}
    monkeypatch.setattr(
        RemoteServer, "metrics", lambda server: page | {"vllm:num_requests_running": left.pop(0)}
    )
    wait_until_idle(RemoteServer("http://busy"))
    assert left == []
    monkeypatch.setattr(gauges, "_IDLE_LIMIT_S", 0.05)
    monkeypatch.setattr(RemoteServer, "metrics", lambda server: page)
    wait_until_idle(RemoteServer("http://always-busy"))

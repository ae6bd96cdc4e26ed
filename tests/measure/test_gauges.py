from __future__ import annotations

import time

import pytest

from outdraft.measure import gauges
from outdraft.measure.gauges import Sample, polled_gauges, wait_until_idle, while_counting
from outdraft.observe import RemoteServer
from outdraft.testing.fake_server import FakeServer

from .made import done, failed

MS = 1_000_000


def test_only_the_time_in_which_requests_count() -> None:
    samples = [Sample(at * MS, "running_requests", at) for at in range(0, 500, 50)]
    lead = [done(-1, e2e=400, is_warmup=True)]
    counted = [done(n, at=100 + 50 * n, e2e=100) for n in range(3)]
    found = while_counting(samples, [*lead, *counted, failed(9)])
    assert [each.value for each in found] == [0, 50, 100, 150, 200, 250, 300], "from the failed one"
    found = while_counting(samples, [*lead, *counted])
    assert [each.value for each in found] == [100, 150, 200, 250, 300]
    assert while_counting(samples, lead) == []


def test_a_server_is_asked_while_a_load_runs() -> None:
    with FakeServer() as server:
        server.metrics.num_running = 3
        began = time.perf_counter_ns()
        with polled_gauges(RemoteServer(server.url)) as samples:
            time.sleep(0.3)
    running = [each for each in samples if each.name == gauges.RUNNING]
    assert len(running) >= 2
    assert {each.value for each in running} == {3}
    assert all(began < each.at_ns < time.perf_counter_ns() for each in running)


def test_a_server_without_gauges_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(RemoteServer, "metrics", lambda server: asked.append(0) or {})
    with polled_gauges(RemoteServer("http://nobody")) as samples:
        time.sleep(0.3)
    wait_until_idle(RemoteServer("http://nobody"))
    assert samples == []
    assert len(asked) == 2


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

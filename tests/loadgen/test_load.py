from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from outdraft.errors import OptionError
from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.loadgen.load import ClientLoad, LoadRun, Sink, allow_open, drive
from outdraft.records import Record
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url

from .plans import closed, every

QUICK = Script(ttft_s=0.005, tpot_s=0.001)


def driven(
    url: str, requests: list[Request], *, sink: Sink | None = None, **options: Any
) -> LoadRun:
    return asyncio.run(drive(ClientLoad(Endpoint(url), requests, **options), sink=sink))


def test_closed_loop_keeps_its_number_of_requests() -> None:
    with FakeServer(Script(ttft_s=0.02, tpot_s=0)) as server:
        open_at_a_time: list[int] = []
        run = driven(
            server.url,
            closed(12),
            concurrency=3,
            sink=lambda record: open_at_a_time.append(server.metrics.num_running),
        )
    assert [record.index for record in run.records] == list(range(12))
    assert all(record.ok for record in run.records)
    assert max(open_at_a_time) <= 3
    assert not run.is_stopped
    spans = [(record.sent_ns or 0, record.last_ns or 0) for record in run.records]
    overlaps = [sum(start <= at < end for start, end in spans) for at, _ in spans]
    assert max(overlaps) == 3


def test_fillers_keep_the_slots_busy_to_the_end_and_are_left_behind() -> None:
    """Two at a time, of which the last takes long: it is never alone."""
    requests = closed(4)
    spare = [replace(each, index=9, is_filler=True) for each in closed(50)]

    def timing(prompt: str, temperature: float, number: int) -> tuple[float, float]:
        return 0.25 if number == 3 else 0.05, 0.0

    with FakeServer(Script(timing=timing)) as server:
        running: list[int] = []
        run = driven(
            server.url,
            [*requests, *spare],
            concurrency=2,
            sink=lambda record: running.append(server.metrics.num_running),
        )
        assert [record.index for record in run.records] == [0, 1, 2, 3]
        assert not run.is_stopped
        assert running[-1] >= 1, "a filler beside the last one"
        assert server.metrics.num_requests < 10, "no more than were needed"
        assert run.num_fillers == server.metrics.num_requests - 4


def test_by_the_clock_fillers_come_until_the_last_has_ended() -> None:
    """Four that count, one each 20 ms, of which the last takes long."""

    def timing(prompt: str, temperature: float, number: int) -> tuple[float, float]:
        return 0.3 if number == 3 else 0.01, 0.0

    spare = [replace(each, is_filler=True) for each in every(0.02, 100)[4:]]
    with FakeServer(Script(timing=timing)) as server:
        run = driven(server.url, [*every(0.02, 4), *spare])
        assert [record.index for record in run.records] == [0, 1, 2, 3]
        assert not run.is_stopped
        assert 8 <= server.metrics.num_requests <= 40


def test_open_loop_sends_at_its_times_however_slow_the_server_is() -> None:
    with fake_server(Script(ttft_s=0.5, tpot_s=0)) as url:
        run = driven(url, every(0.01, 20))
    assert [record.scheduled_ns - run.start_ns for record in run.records] == [
        number * 10_000_000 for number in range(20)
    ]
    assert all(record.ok for record in run.records)
    for record in run.records:
        assert 0 <= (record.lag_ns or 0) < 0.4e9  # before the first of them was answered
    assert len(run.pulses) == 1
    assert run.pulses[0].duration_ns > 0.5e9


def test_a_plan_out_of_order_is_sent_in_the_order_of_its_times() -> None:
    requests = every(0.01, 4)
    with fake_server(QUICK) as url:
        run = driven(url, requests[::-1])
    assert [record.index for record in run.records] == [0, 1, 2, 3]
    sent = [record.sent_ns or 0 for record in run.records]
    assert sent == sorted(sent)


def test_more_than_may_be_open_is_an_error_that_says_so() -> None:
    with fake_server(Script(ttft_s=0.3, tpot_s=0)) as url:
        run = driven(url, every(0.001, 10), max_open=4)
    assert [record.error for record in run.records] == [None] * 4 + [
        "not sent: 4 requests are open already"
    ] * 6
    assert all(record.sent_ns is None for record in run.records[4:])


def test_warm_up_and_place_are_kept() -> None:
    [request] = closed(1)
    marked = Request(request.planned, arm="on", block=3, index=7, is_warmup=True)
    with fake_server(QUICK) as url:
        [record] = driven(url, [marked], concurrency=1).records
    assert (record.arm, record.block, record.index, record.is_warmup) == ("on", 3, 7, True)


@pytest.mark.parametrize("requests", [closed(100), every(0.005, 100)])
def test_being_cancelled_gives_the_records_so_far(requests: list[Request]) -> None:
    seen: list[Record] = []

    async def cancelled(url: str) -> LoadRun:
        is_closed = requests[0].planned.offset_ns is None
        plan = ClientLoad(Endpoint(url), requests, concurrency=2 if is_closed else None)
        task = asyncio.create_task(drive(plan, sink=seen.append))
        while len(seen) < 5:
            await asyncio.sleep(0.005)
        task.cancel()
        return await task

    with fake_server(Script(ttft_s=0.02, tpot_s=0)) as url:
        run = asyncio.run(cancelled(url))
    assert run.is_stopped
    assert run.num_planned == 100
    assert 5 <= len(run.records) < 100
    assert {record.index for record in run.records} == {record.index for record in seen}


def test_a_time_limit_around_it_works() -> None:
    async def limited(url: str) -> LoadRun:
        async with asyncio.timeout(0.2):
            return await drive(ClientLoad(Endpoint(url), closed(1000), concurrency=1))

    with fake_server(Script(ttft_s=0.01, tpot_s=0)) as url:
        assert asyncio.run(limited(url)).is_stopped


def test_a_sink_that_fails_ends_the_load() -> None:
    def full(record: Record) -> None:
        raise OSError("no space left")

    started = time.monotonic()
    with fake_server(QUICK) as url, pytest.raises(OSError, match="no space left"):
        driven(url, every(0.05, 100), sink=full)
    assert time.monotonic() - started < 4


def test_a_server_that_dies_in_the_middle() -> None:
    with FakeServer(QUICK) as server:
        seen: list[Record] = []

        def count(record: Record) -> None:
            seen.append(record)
            if len(seen) == 5:
                server.stop()

        run = driven(server.url, every(0.01, 30), sink=count)
    errors = [record.error for record in run.records]
    assert len(errors) == 30
    assert sum(error is None for error in errors) >= 5
    assert errors[-1] == "refused"


def test_new_connections_refused_while_the_old_ones_go_on() -> None:
    with FakeServer(Script(ttft_s=0.1, tpot_s=0)) as server:
        run = driven(server.url, every(0.03, 8), sink=lambda record: server.refuse())
    errors = [record.error for record in run.records]
    assert errors[0] is None
    assert set(errors) <= {None, "refused"}


def test_every_request_is_counted_when_nobody_is_there() -> None:
    run = driven(refusing_url(), closed(50), concurrency=5)
    assert [record.error for record in run.records] == ["refused"] * 50


def test_a_hopeless_server_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outdraft.loadgen.load._HOPELESS_NS", -1)
    run = driven(refusing_url(), closed(30), concurrency=1)
    errors = [record.error for record in run.records]
    assert errors == ["refused"] * 20 + ["not sent: the last 20 requests failed"] * 10


def test_a_plan_without_times_needs_a_concurrency() -> None:
    with pytest.raises(OptionError, match="2 of 2 requests have no time"):
        driven("http://127.0.0.1:9", closed(2))
    with pytest.raises(OptionError, match="concurrency must be at least 1, got 0"):
        driven("http://127.0.0.1:9", closed(2), concurrency=0)


def test_nothing_to_send() -> None:
    assert driven("http://127.0.0.1:9", [], concurrency=2).records == ()
    assert driven("http://127.0.0.1:9", []).records == ()


def test_files_bound_what_may_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"now": (256, 1024)}
    monkeypatch.setattr("resource.getrlimit", lambda which: limits["now"])
    monkeypatch.setattr("resource.setrlimit", lambda which, new: limits.update(now=new))
    assert allow_open(100) == 100
    assert limits["now"] == (256, 1024)
    assert allow_open(500) == 500
    assert limits["now"] == (628, 1024)
    assert allow_open(5000) == 1024 - 128

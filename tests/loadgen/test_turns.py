"""Requests of a session: one after the other, each with all that was said before."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from outdraft.loadgen.endpoint import Endpoint, Request, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer

from .plans import planned

QUICK = Script(ttft_s=0.005, tpot_s=0.001)


def sessions(count: int, turns: int, **fields: Any) -> list[Request]:
    plan = []
    for number in range(count):
        first, *later = (planned(10 * number + turn, **fields) for turn in range(turns))
        plan.append(replace(first, then=tuple(later)))
    return make_requests(plan)


def test_indices_leave_room_for_the_turns() -> None:
    made = sessions(3, 2)
    assert [each.index for each in made] == [0, 2, 4]
    assert [(each.index, each.turn) for each in made[1].turns] == [(2, 0), (3, 1)]
    assert [each.planned.prompt.id for each in made[1].turns] == ["p10", "p11"]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_turn_has_what_was_said_before(processes: int) -> None:
    with FakeServer(QUICK) as server:
        run = run_load(Endpoint(server.url), sessions(4, 3), concurrency=2, processes=processes)
    assert [(each.index, each.turn) for each in run.records] == [
        (3 * session + turn, turn) for session in range(4) for turn in range(3)
    ]
    assert all(each.ok for each in run.records)
    assert not run.is_stopped
    asked = [tuple(each["content"] for each in body["messages"]) for body in server.bodies]
    for session in range(4):
        records = run.records[3 * session : 3 * session + 3]
        first, second, third = (f"write about subject {10 * session + turn}" for turn in range(3))
        one, two, _ = (each.text for each in records)
        assert (first,) in asked
        assert (first, one, second) in asked
        assert (first, one, second, two, third) in asked
        for before, after in pairwise(records):
            assert before.last_ns is not None
            assert after.scheduled_ns >= before.last_ns
    roles = {tuple(each["role"] for each in body["messages"]) for body in server.bodies}
    assert ("user", "assistant", "user", "assistant", "user") in roles


def test_as_many_sessions_at_a_time() -> None:
    with FakeServer(Script(ttft_s=0.03, tpot_s=0.001)) as server:
        run = run_load(Endpoint(server.url), sessions(6, 2), concurrency=2)
    for each in run.records:
        beside = [
            other
            for other in run.records
            if other.scheduled_ns < (each.last_ns or 0) and (other.last_ns or 0) > each.scheduled_ns
        ]
        assert len(beside) <= 4, "two at a time, and those that follow and went before"


def test_after_a_turn_that_fails_the_others_are_not_sent() -> None:
    with FakeServer(QUICK, failures={"http_500": 2}) as server:
        run = run_load(Endpoint(server.url), sessions(2, 3), concurrency=1)
    errors = [each.error for each in run.records]
    assert errors[0] is None
    assert (errors[1] or "").startswith("http 500")
    assert errors[2] == "not sent: the turn before failed"
    assert not run.is_stopped
    assert server.metrics.num_requests == 4


def test_by_the_clock_only_first_turns_have_a_time() -> None:
    made = [
        replace(each, planned=replace(each.planned, offset_ns=at * 20_000_000))
        for at, each in enumerate(sessions(3, 2))
    ]
    with FakeServer(QUICK) as server:
        run = run_load(Endpoint(server.url), made)
    due = [each.scheduled_ns - run.start_ns for each in run.records]
    assert due[::2] == [0, 20_000_000, 40_000_000]
    assert all(each.ok for each in run.records)
    assert [each.turn for each in run.records] == [0, 1] * 3


def test_a_session_that_has_begun_is_finished() -> None:
    with FakeServer(Script(ttft_s=0.02, tpot_s=0.001)) as server:
        run = run_load(Endpoint(server.url), sessions(500, 4), concurrency=2, duration_ns=10**8)
    assert len(run.records) % 4 == 0
    assert 8 <= len(run.records) <= 24
    assert not run.is_stopped
    assert all(each.ok for each in run.records)

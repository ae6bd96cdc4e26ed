"""Which request is next, by a clock of our own."""

from __future__ import annotations

from dataclasses import replace

from outdraft.loadgen.endpoint import Request
from outdraft.loadgen.queue import Queue

from .plans import closed

S = 10**9


def leads(count: int) -> list[Request]:
    return [
        replace(each, index=at - count, is_warmup=True) for at, each in enumerate(closed(count))
    ]


def test_without_a_duration_all_are_handed_out() -> None:
    fillers = [replace(each, is_filler=True) for each in closed(2)]
    queue = Queue([*leads(1), *closed(2), *fillers])
    taken = [queue.take(n * S) for n in range(3)]
    assert [each is not None and each.index for each in taken] == [-1, 0, 1]
    assert queue.num_planned == 3
    for _ in range(3):
        assert not queue.is_done.is_set()
        filler = queue.take(0)
        assert filler is None or filler.is_filler
        queue.end_one()
    assert queue.is_done.is_set()
    assert queue.take(0) is None


def test_the_time_begins_with_the_first_that_counts() -> None:
    queue = Queue([*leads(2), *closed(9)], duration_ns=2 * S)
    assert queue.take(0) is not None
    assert queue.take(1 * S) is not None
    for now in (100 * S, 101 * S, 102 * S - 1):
        request = queue.take(now)
        assert request is not None
        assert not request.is_filler
    late = [queue.take(now) for now in (102 * S, 103 * S)]
    assert [each is not None and each.is_filler for each in late] == [True, True]
    assert queue.num_planned == 2 + 3
    for _ in range(5):
        assert not queue.is_done.is_set()
        queue.end_one()
    assert queue.is_done.is_set()
    assert queue.take(104 * S) is None


def test_where_all_have_ended_when_the_time_is_over_nothing_is_sent() -> None:
    queue = Queue(closed(9), duration_ns=S)
    assert queue.take(0) is not None
    queue.end_one()
    assert queue.take(2 * S) is None
    assert queue.is_done.is_set()
    assert queue.num_planned == 1


def test_an_empty_one_is_done() -> None:
    assert Queue([]).is_done.is_set()

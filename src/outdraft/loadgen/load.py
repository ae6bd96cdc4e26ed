"""Drives a list of requests, in closed loop or at their times, in this process."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from time import perf_counter_ns

from outdraft.errors import OptionError
from outdraft.loadgen.client import Client
from outdraft.loadgen.heartbeat import Heartbeat, Pulse
from outdraft.loadgen.request import Request
from outdraft.records import Record

MAX_OPEN = 4096  # requests at a time in an open loop; each is a connection and a file
_LEAD_NS = 20_000_000  # between asking for a load and its start
_SPARE_FILES = 128  # for everything but connections
# When this many requests in a row failed over this time, the rest is not sent.
_HOPELESS_FAILURES = 20
_HOPELESS_NS = 60_000_000_000

Sink = Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a load."""

    records: tuple[Record, ...]  # in the order of the plan; less than it if it was stopped
    num_planned: int
    started_at: str  # wall clock, ISO 8601, UTC
    start_ns: int  # what offsets count from; that moment to a tenth of a second
    pulses: tuple[Pulse, ...]  # of each client process
    refused_fields: tuple[str, ...] = ()  # what the server did not take and was left out
    problems: tuple[str, ...] = ()  # of the client processes

    @property
    def is_stopped(self) -> bool:
        return len(self.records) < self.num_planned


async def drive(
    client: Client,
    requests: Sequence[Request],
    *,
    concurrency: int | None = None,
    start_ns: int | None = None,
    max_open: int = MAX_OPEN,
    sink: Sink | None = None,
) -> Run:
    """`concurrency`: so many at a time; None: each at its offset, however slow the server is.

    `sink` gets every record when it is there, and must be quick. Being cancelled ends the load,
    not the caller: what is open is given up, and the run comes back with the records so far.
    """
    check_plan(requests, concurrency)
    started_at = datetime.now(UTC).isoformat()
    start = perf_counter_ns() + _LEAD_NS if start_ns is None else start_ns
    load = _Load(client, sink)
    async with Heartbeat() as heart:
        if concurrency is not None:
            room_for(concurrency)
            await _until_stopped(load.closed(requests, concurrency, start))
        else:
            await _until_stopped(load.at_their_times(requests, start, room_for(max_open)))
    return Run(
        records=tuple(in_order(load.records)),
        num_planned=len(requests),
        started_at=started_at,
        start_ns=start,
        pulses=(heart.pulse,),
        refused_fields=tuple(sorted(client.refused)),
    )


def check_plan(requests: Sequence[Request], concurrency: int | None) -> None:
    if concurrency is not None:
        if concurrency < 1:
            raise OptionError(f"concurrency must be at least 1, got {concurrency}")
        return
    undated = sum(each.planned.offset_ns is None for each in requests)
    if undated:
        raise OptionError(
            f"{undated} of {len(requests)} requests have no time to be sent at; "
            "give the plan arrivals, or say how many to send at a time"
        )


def in_order(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda each: (each.block, each.index))


def room_for(max_open: int) -> int:
    """At most as many as this process may have files open, whose limit is raised if it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_open + _SPARE_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        return max(1, soft - _SPARE_FILES) if soft < wanted else max_open
    return max_open


class _Load:
    def __init__(self, client: Client, sink: Sink | None) -> None:
        self._client = client
        self._sink = sink
        self.records: list[Record] = []
        self._num_open = 0
        self._num_failed = 0  # since one succeeded, or since the start
        self._failing_since_ns = 0

    async def closed(self, requests: Sequence[Request], concurrency: int, start_ns: int) -> None:
        left = iter(requests)
        await _until(start_ns)
        async with asyncio.TaskGroup() as slots:
            for _ in range(min(concurrency, len(requests))):
                slots.create_task(self._slot(left))

    async def at_their_times(
        self, requests: Sequence[Request], start_ns: int, max_open: int
    ) -> None:
        dated = sorted((each.planned.offset_ns or 0, index) for index, each in enumerate(requests))
        async with asyncio.TaskGroup() as group:
            for offset, index in dated:
                due = start_ns + offset
                await _until(due)
                if self._num_open >= max_open:
                    self._keep(
                        requests[index].record(
                            due, error=f"not sent: {max_open} requests are open already"
                        )
                    )
                else:
                    self._num_open += 1
                    group.create_task(self._one(requests[index], due))

    async def _slot(self, left: Iterator[Request]) -> None:
        for request in left:
            self._num_open += 1
            await self._one(request, perf_counter_ns())

    async def _one(self, request: Request, due_ns: int) -> None:
        try:
            if self._is_hopeless():
                error = f"not sent: the last {self._num_failed} requests failed"
                self._keep(request.record(due_ns, error=error))
                return
            record = await self._client.send(request, due_ns)
        finally:
            self._num_open -= 1
        if record.ok:
            self._num_failed = 0
        else:
            self._num_failed += 1
            if self._num_failed == 1:
                self._failing_since_ns = perf_counter_ns()
        self._keep(record)

    def _is_hopeless(self) -> bool:
        """A server that hangs would otherwise cost a timeout for every request there is."""
        since = perf_counter_ns() - self._failing_since_ns
        return self._num_failed >= _HOPELESS_FAILURES and since > _HOPELESS_NS

    def _keep(self, record: Record) -> None:
        self.records.append(record)
        if self._sink is not None:
            self._sink(record)


async def _until_stopped(load: Coroutine[None, None, None]) -> None:
    try:
        await load
    except asyncio.CancelledError:
        task = asyncio.current_task()
        assert task is not None
        task.uncancel()
    except BaseExceptionGroup as group:  # of the sink, or our own mistake
        raise group.exceptions[0] from None


async def _until(due_ns: int) -> None:
    left = due_ns - perf_counter_ns()
    if left <= 0:
        await asyncio.sleep(0)  # behind the plan: others must get on all the same
    while left > 0:  # a loop's timer may be up to a millisecond early
        await asyncio.sleep(left / 1e9)
        left = due_ns - perf_counter_ns()

"""Sends a list of requests from this process: so many at a time, or each at its time."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from time import perf_counter_ns

from outdraft.errors import OptionError
from outdraft.loadgen.client import Client
from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.loadgen.heartbeat import Heartbeat, Pulse
from outdraft.loadgen.queue import Queue
from outdraft.records import Record

MAX_OPEN = 4096  # requests at a time in an open loop; each is a connection and a file
_LEAD_NS = 20_000_000  # between the call and the start of the load
_SPARE_FILES = 128  # for everything but connections
# After so many failures in a row over so much time, the remaining requests are not sent.
_HOPELESS_FAILURES = 20
_HOPELESS_NS = 60_000_000_000

Sink = Callable[[Record], None]


@dataclass(frozen=True, slots=True)
class ClientLoad:
    """What one client process sends, and how. Plain values: it is sent to that process."""

    endpoint: Endpoint
    requests: Sequence[Request]
    concurrency: int | None = None  # at a time; None: each at its offset, however slow the server
    # With so many at a time: requests that count are sent for so long, from the first of them on.
    duration_ns: int | None = None
    max_open: int = MAX_OPEN
    keep_text: bool = True

    def __post_init__(self) -> None:
        if self.concurrency is not None:
            if self.concurrency < 1:
                raise OptionError(f"concurrency must be at least 1, got {self.concurrency}")
            return
        if undated := sum(each.planned.offset_ns is None for each in self.requests):
            raise OptionError(
                f"{undated} of {len(self.requests)} requests have no time to be sent at; "
                "give the plan arrivals, or say how many to send at a time"
            )

    @property
    def recorded(self) -> list[Request]:
        """Those that a record is made of, later turns of their sessions included."""
        return [turn for each in self.requests if not each.is_filler for turn in each.turns]

    def split(self, parts: int) -> list[ClientLoad]:
        """Requests are dealt out in turn, so that every part has an even share of each second."""

        def share(whole: int, part: int) -> int:
            return max(1, whole // parts + (part < whole % parts))

        return [
            replace(
                self,
                requests=self.requests[part::parts],
                concurrency=None if self.concurrency is None else share(self.concurrency, part),
                max_open=share(self.max_open, part),
            )
            for part in range(parts)
        ]


@dataclass(frozen=True, slots=True)
class LoadRun:
    """The result of a load."""

    records: tuple[Record, ...]  # in the order of the plan; fewer than planned if it was stopped
    num_planned: int
    start_ns: int = 0  # what offsets count from
    pulses: tuple[Pulse, ...] = ()  # of each client process
    refused_fields: tuple[str, ...] = ()  # request fields that the server refused
    problems: tuple[str, ...] = ()  # of the client processes
    num_fillers: int = 0  # that were sent; there are no records of them

    @property
    def is_stopped(self) -> bool:
        return len(self.records) < self.num_planned


async def drive(
    load: ClientLoad, *, start_ns: int | None = None, sink: Sink | None = None
) -> LoadRun:
    """Sends the requests of `load`. `sink` gets every record as it is made, and must be quick.

    Cancelling ends the load, not the caller: open requests are abandoned, and the run is returned
    with the records so far.
    """
    start = perf_counter_ns() + _LEAD_NS if start_ns is None else start_ns
    async with Client(load.endpoint, keep_text=load.keep_text) as client:
        sender = _Sender(client, sink)
        async with Heartbeat() as heart:
            limit = allow_open(load.concurrency or load.max_open)
            queue = Queue(load.requests, load.duration_ns)
            if load.concurrency is not None:
                await _until_stopped(sender.closed(queue, load.concurrency, start))
            else:
                await _until_stopped(sender.at_their_times(load.requests, start, limit))
    return LoadRun(
        records=in_order(sender.records),
        num_planned=queue.num_planned,
        start_ns=start,
        pulses=(heart.pulse,),
        refused_fields=tuple(sorted(client.refused)),
        num_fillers=sender.num_fillers,
    )


def in_order(records: Sequence[Record]) -> tuple[Record, ...]:
    return tuple(sorted(records, key=lambda each: (each.block, each.index)))


def allow_open(max_open: int) -> int:
    """Raises this process's limit on open files if needed. Returns how many connections fit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max_open + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max_open
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, soft - _SPARE_FILES)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's if it is installed: a request costs less processor time with it."""
    try:
        import uvloop  # optional
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Sender:
    def __init__(self, client: Client, sink: Sink | None) -> None:
        self._client = client
        self._sink = sink
        self.records: list[Record] = []
        self.num_fillers = 0
        self._num_open = 0
        self._num_failed = 0  # since the last success
        self._failing_since_ns = 0

    async def closed(self, queue: Queue, concurrency: int, start_ns: int) -> None:
        await _until(start_ns)
        async with asyncio.TaskGroup() as group:
            slots = [
                group.create_task(self._slot(queue)) for _ in range(min(concurrency, queue.size))
            ]
            await queue.is_done.wait()
            for slot in slots:  # what still runs are fillers
                slot.cancel()

    async def at_their_times(
        self, requests: Sequence[Request], start_ns: int, max_open: int
    ) -> None:
        done = asyncio.Semaphore(0)  # released by every request that is recorded
        fillers: list[asyncio.Task[None]] = []

        async def send_all() -> None:
            for request in sorted(requests, key=lambda each: each.planned.offset_ns or 0):
                due = start_ns + (request.planned.offset_ns or 0)
                await _until(due)
                if self._num_open >= max_open:
                    error = f"not sent: {max_open} requests are open already"
                    self._give_up(request, due, error, done.release)
                    continue
                self._num_open += 1
                task = group.create_task(self._send(request, due, done.release))
                if request.is_filler:
                    fillers.append(task)

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send_all())
            for request in requests:
                for _ in request.turns if not request.is_filler else ():
                    await done.acquire()
            for task in (sending, *fillers):
                task.cancel()

    async def _slot(self, queue: Queue) -> None:
        while (request := queue.take(perf_counter_ns())) is not None:
            self._num_open += 1
            await self._send(request, perf_counter_ns(), queue.end_one)

    async def _send(self, request: Request, due_ns: int, on_end: Callable[[], None]) -> None:
        """A request and the later turns of its session, each as soon as the one before is answered.
        `on_end`: called when one that is recorded has ended."""
        try:
            turn: Request | None = request
            while turn is not None:
                turn = await self._send_turn(turn, due_ns, on_end)
                due_ns = perf_counter_ns()
        finally:
            self._num_open -= 1

    async def _send_turn(
        self, request: Request, due_ns: int, on_end: Callable[[], None]
    ) -> Request | None:
        """The next turn; None: there is none, or it cannot be sent."""
        if self._is_hopeless():
            error = f"not sent: the last {self._num_failed} requests failed"
            self._give_up(request, due_ns, error, on_end)
            return None
        self.num_fillers += request.is_filler
        record = await self._client.send(request, due_ns)
        self._num_failed = 0 if record.ok else self._num_failed + 1
        if self._num_failed == 1:
            self._failing_since_ns = perf_counter_ns()
        if not request.is_filler:
            self._keep(record)
            on_end()
        following = request.following(record.text or "")
        if following is not None and not record.ok:
            self._give_up(following, perf_counter_ns(), "not sent: the turn before failed", on_end)
            return None
        return following

    def _give_up(
        self, request: Request, due_ns: int, error: str, on_end: Callable[[], None]
    ) -> None:
        """Also the later turns of its session."""
        for turn in request.turns if not request.is_filler else ():
            self._keep(turn.record(due_ns, error=error))
            on_end()

    def _is_hopeless(self) -> bool:
        """Otherwise every request to a server that hangs would cost a timeout."""
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
    except BaseExceptionGroup as group:  # raised by the sink, or by a mistake of ours
        raise group.exceptions[0] from None


async def _until(due_ns: int) -> None:
    left = due_ns - perf_counter_ns()
    if left <= 0:
        await asyncio.sleep(0)  # late already: other tasks must run all the same
    while left > 0:  # a loop's timer may be up to a millisecond early
        await asyncio.sleep(left / 1e9)
        left = due_ns - perf_counter_ns()

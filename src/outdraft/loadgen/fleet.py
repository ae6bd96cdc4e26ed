"""A load from one client process or from several.

One event loop of Python holds only so many requests a second (`benchmarks/loadgen.py`); beyond
that it is late, and its lateness looks like the server's. Processes start together: on Linux
time.perf_counter_ns is CLOCK_MONOTONIC, the same in every process, which is checked.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from outdraft.errors import OptionError, OutdraftError
from outdraft.loadgen.client import Client, Timeouts
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.event_loop import new_event_loop
from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import MAX_OPEN, Run, Sink, check_plan, drive, in_order
from outdraft.loadgen.process import Ended, Share, client_process
from outdraft.loadgen.request import Request
from outdraft.records import Record

_READY_S = 60.0  # for a process to start and import
_LEAD_NS = 100_000_000  # between the last process being ready and the common start
_STOP_S = 5.0  # for a process to end when it is told to


def run_load(
    endpoint: Endpoint,
    requests: Sequence[Request],
    *,
    concurrency: int | None = None,
    processes: int = 1,
    timeouts: Timeouts | None = None,
    max_open: int = MAX_OPEN,
    keep_text: bool = True,
    sink: Sink | None = None,
) -> Run:
    """Sends `requests` and waits for the end; the parameters are those of `drive`.

    With one process it runs in this one; several are spawned, so a script that asks for them
    needs its `if __name__ == "__main__"`. Control-C ends the load: what there is comes back.
    """
    check_plan(requests, concurrency)
    if processes < 1:
        raise OptionError(f"processes must be at least 1, got {processes}")
    processes = min(processes, concurrency or processes, max(len(requests), 1))
    share = Share(
        endpoint, timeouts or Timeouts(), keep_text, list(requests), concurrency, max_open
    )
    if processes > 1:
        return _Fleet(_shares(share, processes), sink).run()

    async def here() -> Run:
        async with Client(endpoint, share.timeouts, keep_text=keep_text) as client:
            return await drive(
                client, requests, concurrency=concurrency, max_open=max_open, sink=sink
            )

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(here())


def _shares(whole: Share, processes: int) -> list[Share]:
    """The requests dealt out like cards, so that every process has an even part of each second."""
    return [
        Share(
            whole.endpoint,
            whole.timeouts,
            whole.keep_text,
            whole.requests[place::processes],
            None if whole.concurrency is None else _part(whole.concurrency, place, processes),
            _part(whole.max_open, place, processes),
        )
        for place in range(processes)
    ]


def _part(whole: int, place: int, processes: int) -> int:
    return max(1, whole // processes + (place < whole % processes))


@dataclass(slots=True)
class _Member:
    number: int
    share: Share
    process: BaseProcess
    pipe: Connection
    records: list[Record] = field(default_factory=list)
    ended: Ended | None = None
    is_gone: bool = False


class _Fleet:
    def __init__(self, shares: Sequence[Share], sink: Sink | None) -> None:
        self._sink = sink
        self._members = [_started(number, share) for number, share in enumerate(shares)]
        self._problems: list[str] = []
        self._start_ns = 0

    def run(self) -> Run:
        is_stopped = False
        try:
            for member in self._members:
                _check_clock(member)
            self._start_ns = time.perf_counter_ns() + _LEAD_NS
            started_at = datetime.now(UTC).isoformat()
            for member in self._members:
                _tell(member, self._start_ns)
            try:
                self._collect(None)
            except KeyboardInterrupt:
                is_stopped = True
                for member in self._members:
                    _tell(member, None)
                self._collect(time.monotonic() + _STOP_S)
        finally:
            self._end()
        if not is_stopped:
            for member in self._members:
                self._account_for(member)
        members = self._members
        return Run(
            records=tuple(in_order([record for each in members for record in each.records])),
            num_planned=sum(len(each.share.requests) for each in members),
            started_at=started_at,
            start_ns=self._start_ns,
            pulses=tuple(_pulse(each) for each in members if each.ended is not None),
            refused_fields=tuple(
                sorted({name for each in members if each.ended for name in each.ended.refused})
            ),
            problems=tuple(self._problems),
        )

    def _collect(self, until: float | None) -> None:
        """Records as they come, until every process has ended or the time is over."""
        while busy := {each.pipe: each for each in self._members if not each.is_gone}:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return
            for pipe in wait(list(busy), left):
                assert isinstance(pipe, Connection)
                self._receive(busy[pipe])

    def _receive(self, member: _Member) -> None:
        try:
            message = member.pipe.recv()
        except (EOFError, OSError):  # killed, perhaps in the middle of a message
            member.is_gone = True
            return
        if isinstance(message, Ended):
            member.ended = message
            member.is_gone = True
            return
        for record in message:
            member.records.append(record)
            if self._sink is not None:
                self._sink(record)

    def _account_for(self, member: _Member) -> None:
        """A process that died leaves requests without a record: they get one."""
        if member.ended is not None:
            return
        have = {(each.block, each.index) for each in member.records}
        lost = [each for each in member.share.requests if (each.block, each.index) not in have]
        what = f"client process {member.number} died (exit code {member.process.exitcode})"
        self._problems.append(f"{what} with {len(lost)} of its requests not answered")
        for request in lost:
            due = self._start_ns + (request.planned.offset_ns or 0)
            record = request.record(due, error=f"client process died: {member.process.exitcode}")
            member.records.append(record)
            if self._sink is not None:
                self._sink(record)

    def _end(self) -> None:
        for member in self._members:
            member.pipe.close()  # a process that still runs takes that as the end
        for member in self._members:
            member.process.join(_STOP_S)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()


def _started(number: int, share: Share) -> _Member:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=client_process, args=(theirs, share), name=f"outdraft-client-{number}", daemon=True
    )
    process.start()
    theirs.close()  # or we would not see the process end
    return _Member(number, share, process, ours)


def _check_clock(member: _Member) -> None:
    """Its clock must read between two readings of ours, else no common start can be meant."""
    try:
        if not member.pipe.poll(_READY_S):
            raise OutdraftError(
                f"client process {member.number} did not start within {_READY_S:g} s; use fewer"
            )
        member.pipe.recv()  # it is there
        before = time.perf_counter_ns()
        member.pipe.send("clock")
        theirs = member.pipe.recv()
        after = time.perf_counter_ns()
    except (EOFError, OSError):
        member.process.join(_STOP_S)
        raise OutdraftError(
            f"client process {member.number} ended with code {member.process.exitcode} before it "
            'began; a script that asks for several needs its `if __name__ == "__main__"`'
        ) from None
    if not before <= theirs <= after:
        raise OutdraftError(
            f"the clock of client process {member.number} is {(theirs - after) / 1e9:+.3f} s off "
            "ours; use one process on this system"
        )


def _tell(member: _Member, message: int | None) -> None:
    try:
        member.pipe.send(message)
    except OSError:
        member.is_gone = True


def _pulse(member: _Member) -> Pulse:
    assert member.ended is not None
    return member.ended.pulse

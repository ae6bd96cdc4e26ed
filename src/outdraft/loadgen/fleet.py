"""Runs a load from one client process or from several.

One event loop of Python holds only so many requests a second (`benchmarks/loadgen.py`); beyond
that it is late, and its lateness looks like the server's. Processes start together: on Linux
time.perf_counter_ns is CLOCK_MONOTONIC, the same in every process, which is checked.
"""

import asyncio
import multiprocessing
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from outdraft.errors import OptionError, OutdraftError
from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.loadgen.load import ClientLoad, LoadRun, Sink, drive, in_order, new_event_loop
from outdraft.loadgen.process import Ended, client_process
from outdraft.records import Record

_READY_S = 60.0  # for a process to start and import
_LEAD_NS = 100_000_000  # between the last process being ready and the common start
_STOP_S = 5.0  # for a process to end after it was told to


def run_load(
    endpoint: Endpoint,
    requests: Sequence[Request],
    *,
    concurrency: int | None = None,
    duration_ns: int | None = None,
    processes: int = 1,
    keep_text: bool = True,
    sink: Sink | None = None,
) -> LoadRun:
    """Sends `requests` and waits for the end; see `ClientLoad` for the parameters.

    One process is this one. Several are spawned, so a script that wants them needs its
    `if __name__ == "__main__"`. Control-C ends the load; the records so far are returned.
    """
    load = ClientLoad(endpoint, requests, concurrency, duration_ns, keep_text=keep_text)
    if processes < 1:
        raise OptionError(f"processes must be at least 1, got {processes}")
    processes = min(processes, concurrency or processes, max(len(requests), 1))
    if processes > 1:
        return _Fleet(load.split(processes), sink).run()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(drive(load, sink=sink))


@dataclass(slots=True)
class _Member:
    number: int
    load: ClientLoad
    process: BaseProcess
    pipe: Connection
    records: list[Record] = field(default_factory=list)
    ended: Ended | None = None
    is_gone: bool = False

    @property
    def num_planned(self) -> int:
        if self.ended is not None:
            return self.ended.num_planned
        is_known = self.load.duration_ns is None
        return len(self.load.recorded if is_known else self.records)


class _Fleet:
    def __init__(self, loads: Sequence[ClientLoad], sink: Sink | None) -> None:
        self._sink = sink
        self._members = [_start(number, load) for number, load in enumerate(loads)]

    def run(self) -> LoadRun:
        is_stopped = False
        try:
            for member in self._members:
                _check_clock(member)
            start_ns = time.perf_counter_ns() + _LEAD_NS
            self._send_all(start_ns)
            try:
                self._collect(None)
            except KeyboardInterrupt:
                is_stopped = True
                self._send_all(None)
                self._collect(time.monotonic() + _STOP_S)
        finally:
            self._end()
        dead = [] if is_stopped else [each for each in self._members if each.ended is None]
        problems = [self._account_for(each, start_ns) for each in dead]
        ended = [each.ended for each in self._members if each.ended is not None]
        return LoadRun(
            records=in_order([record for each in self._members for record in each.records]),
            num_planned=sum(each.num_planned for each in self._members),
            start_ns=start_ns,
            pulses=tuple(each.pulse for each in ended),
            refused_fields=tuple(sorted({name for each in ended for name in each.refused_fields})),
            problems=tuple(problems),
            num_fillers=sum(each.num_fillers for each in ended),
        )

    def _send_all(self, message: int | None) -> None:
        for member in self._members:
            try:
                member.pipe.send(message)
            except OSError:
                member.is_gone = True

    def _collect(self, until: float | None) -> None:
        """Records as they arrive, until every process has ended or the time is over."""
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
        else:
            self._keep(member, message)

    def _keep(self, member: _Member, record: Record) -> None:
        member.records.append(record)
        if self._sink is not None:
            self._sink(record)

    def _account_for(self, member: _Member, start_ns: int) -> str:
        """Makes a record for every request that a dead process left without one."""
        code = member.process.exitcode
        have = {(each.block, each.index) for each in member.records}
        lost = [each for each in member.load.recorded if (each.block, each.index) not in have]
        if member.load.duration_ns is not None:  # how many would have been sent is not known
            lost = lost[: member.load.concurrency]
        error = f"client process died: {code}"
        for each in lost:
            due_ns = start_ns + (each.planned.offset_ns or 0)
            self._keep(member, each.record(due_ns, error=error))
        return (
            f"client process {member.number} died (exit code {code}) with {len(lost)} of its "
            "requests not answered"
        )

    def _end(self) -> None:
        for member in self._members:
            member.pipe.close()  # a process that still runs takes that as the end
        for member in self._members:
            member.process.join(_STOP_S)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()


def _start(number: int, load: ClientLoad) -> _Member:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=client_process, args=(theirs, load), name=f"outdraft-client-{number}", daemon=True
    )
    process.start()
    theirs.close()  # or we would not see the process end
    return _Member(number, load, process, ours)


def _check_clock(member: _Member) -> None:
    """Its clock must read between two readings of ours, or there could be no common start."""
    try:
        if not member.pipe.poll(_READY_S):
            raise OutdraftError(
                f"client process {member.number} did not start within {_READY_S:g} s; use fewer"
            )
        member.pipe.recv()  # "ready"
        before = time.perf_counter_ns()
        member.pipe.send("clock")
        theirs = member.pipe.recv()
        after = time.perf_counter_ns()
    except (EOFError, OSError):
        member.process.join(_STOP_S)
        raise OutdraftError(
            f"client process {member.number} ended with code {member.process.exitcode} before it "
            'began; a script that uses several needs its `if __name__ == "__main__"`'
        ) from None
    if not before <= theirs <= after:
        raise OutdraftError(
            f"the clock of client process {member.number} is {(theirs - after) / 1e9:+.3f} s off "
            "ours; use one process on this system"
        )

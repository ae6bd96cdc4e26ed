"""One client process of a fleet: its share of the requests in, records out through a pipe.

The pipe carries, from here: "ready", a reading of the clock when asked for one, lists of records
as they come, and `Ended`. To here: the question for the clock, the start, and None for "stop".
"""

from __future__ import annotations

import asyncio
import gc
import queue
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from outdraft.loadgen.client import Client, Timeouts
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.event_loop import new_event_loop
from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import Run, drive
from outdraft.loadgen.request import Request
from outdraft.records import Record

_BATCH = 16  # records in a message: pickling one holds up the event loop for its length
_GC_EVERY = 50_000  # allocations between collections; each is a pause


@dataclass(frozen=True, slots=True)
class Share:
    """What one process is to do."""

    endpoint: Endpoint
    timeouts: Timeouts
    keep_text: bool
    requests: list[Request]
    concurrency: int | None
    max_open: int


@dataclass(frozen=True, slots=True)
class Ended:
    pulse: Pulse
    refused: tuple[str, ...]  # optional fields that the server did not take


def client_process(pipe: Connection, share: Share) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    gc.freeze()  # what is there now stays: collections need not look at it
    gc.set_threshold(_GC_EVERY)
    _serve(pipe, share)


def _serve(pipe: Connection, share: Share) -> None:
    try:
        pipe.send("ready")
        pipe.recv()
        pipe.send(time.perf_counter_ns())
        start_ns = pipe.recv()
    except (EOFError, OSError):
        return  # nobody is there any more
    if start_ns is None:
        return
    outbox = _Outbox(pipe)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        run = runner.run(_drive(pipe, share, start_ns, outbox))
    outbox.close(Ended(run.pulses[0], run.refused_fields))


async def _drive(pipe: Connection, share: Share, start_ns: int, outbox: _Outbox) -> Run:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def stop() -> None:  # told to, or the parent has ended
        loop.remove_reader(pipe.fileno())
        task.cancel()

    async with Client(share.endpoint, share.timeouts, keep_text=share.keep_text) as client:
        loop.add_reader(pipe.fileno(), stop)
        try:
            return await drive(
                client,
                share.requests,
                concurrency=share.concurrency,
                start_ns=start_ns,
                max_open=share.max_open,
                sink=outbox.put,
            )
        finally:
            loop.remove_reader(pipe.fileno())


class _Outbox:
    """Sends from a thread: a parent that reads slowly must not make the client late."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._waiting: queue.SimpleQueue[Record | Ended] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._send_all, name="outbox", daemon=True)
        self._thread.start()

    def put(self, record: Record) -> None:
        self._waiting.put(record)

    def close(self, ended: Ended) -> None:
        self._waiting.put(ended)
        self._thread.join()

    def _send_all(self) -> None:
        try:
            while True:
                batch: list[Record] = []
                each = self._waiting.get()
                while isinstance(each, Record):
                    batch.append(each)
                    if len(batch) == _BATCH or self._waiting.empty():
                        break
                    each = self._waiting.get()
                if batch:
                    self._pipe.send(batch)
                if isinstance(each, Ended):
                    self._pipe.send(each)
                    return
        except OSError:
            return  # the parent has ended; the reader of the pipe stops the load

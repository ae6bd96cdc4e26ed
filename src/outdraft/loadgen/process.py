"""One of several client processes: its part of the requests in, records out through a pipe.

From here the pipe carries "ready", a reading of the clock, records, and `Ended` as the last. To
here it carries the request for the clock, the start, and None for "stop".
"""

from __future__ import annotations

import asyncio
import gc
import queue
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import ClientLoad, LoadRun, drive, new_event_loop
from outdraft.records import Record

_GC_EVERY = 50_000  # allocations between collections; each is a pause


@dataclass(frozen=True, slots=True)
class Ended:
    pulse: Pulse
    refused_fields: tuple[str, ...]
    num_fillers: int
    num_planned: int


Outbox = queue.SimpleQueue[Record | Ended]


def client_process(pipe: Connection, load: ClientLoad) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop
    gc.freeze()  # what exists now stays: collections need not look at it
    gc.set_threshold(_GC_EVERY)
    _serve(pipe, load)


def _serve(pipe: Connection, load: ClientLoad) -> None:
    try:
        pipe.send("ready")
        pipe.recv()
        pipe.send(time.perf_counter_ns())
        start_ns = pipe.recv()
    except (EOFError, OSError):
        return  # the parent has ended
    if start_ns is None:
        return
    outbox = Outbox()
    sender = threading.Thread(target=_send_all, args=(pipe, outbox), name="outbox", daemon=True)
    sender.start()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        run = runner.run(_drive(pipe, load, start_ns, outbox))
    outbox.put(Ended(run.pulses[0], run.refused_fields, run.num_fillers, run.num_planned))
    sender.join()


async def _drive(pipe: Connection, load: ClientLoad, start_ns: int, outbox: Outbox) -> LoadRun:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()

    def stop() -> None:  # the parent said so, or has ended
        loop.remove_reader(pipe.fileno())
        task.cancel()

    loop.add_reader(pipe.fileno(), stop)
    try:
        return await drive(load, start_ns=start_ns, sink=outbox.put)
    finally:
        loop.remove_reader(pipe.fileno())


def _send_all(pipe: Connection, waiting: Outbox) -> None:
    """In a thread: a parent that reads slowly must not make the client late."""
    message: Record | Ended | None = None
    with suppress(OSError):  # the parent has ended; `_drive` sees that and stops the load
        while not isinstance(message, Ended):
            message = waiting.get()
            pipe.send(message)

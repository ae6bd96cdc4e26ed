"""One of several client processes: its part of the requests in, records out through a pipe.

From here the pipe carries "ready", a reading of the clock, and lists of records, the last of which
ends with `Ended`. To here it carries the request for the clock, the start, and None for "stop".
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

from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import ClientLoad, LoadRun, drive, new_event_loop
from outdraft.records import Record

_BATCH = 16  # records in a message: pickling one blocks the event loop for that long
_GC_EVERY = 50_000  # allocations between collections; each is a pause


@dataclass(frozen=True, slots=True)
class Ended:
    pulse: Pulse
    refused_fields: tuple[str, ...]


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
    outbox = _Outbox(pipe)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        run = runner.run(_drive(pipe, load, start_ns, outbox))
    outbox.close(Ended(run.pulses[0], run.refused_fields))


async def _drive(pipe: Connection, load: ClientLoad, start_ns: int, outbox: _Outbox) -> LoadRun:
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


class _Outbox:
    """Sends from a thread: a parent that reads slowly must not make the client late."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._waiting: queue.SimpleQueue[Record | Ended] = queue.SimpleQueue()
        self.put = self._waiting.put
        self._thread = threading.Thread(target=self._send_all, name="outbox", daemon=True)
        self._thread.start()

    def close(self, ended: Ended) -> None:
        self._waiting.put(ended)
        self._thread.join()

    def _send_all(self) -> None:
        try:
            while True:
                batch = [self._waiting.get()]
                while len(batch) < _BATCH and not self._waiting.empty():
                    batch.append(self._waiting.get())
                self._pipe.send(batch)
                if isinstance(batch[-1], Ended):
                    return
        except OSError:
            return  # the parent has ended; `_drive` sees that and stops the load

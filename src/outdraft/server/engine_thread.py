"""The one thread that computes.

The OpenMP runtime gives every thread that computes a pool of workers of its own. Once all pools
together have more workers than there are cores, none of them waits by spinning any more, and each
of a step's hundreds of parallel regions pays for a sleep: a quarter of the speed on two cores
(`benchmarks/http_cost.py`). So whatever computes, the loading of a model included, runs here.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class EngineThread:
    """Does what it is given, one thing after the other. It does not keep a process alive."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="engine", daemon=True).start()

    def submit(self, call: Callable[[], _T]) -> Future[_T]:
        future: Future[_T] = Future()
        self._work.put((future, call))
        return future

    def _run(self) -> None:
        while True:
            future, call = self._work.get()
            try:
                future.set_result(call())
            except BaseException as error:  # whoever waits for the result gets it
                future.set_exception(error)
            del future, call  # or they would live until the next one comes

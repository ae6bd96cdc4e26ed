"""The one thread that computes.

The OpenMP runtime gives every computing thread a pool of workers. Once all pools together have
more workers than there are cores, workers sleep instead of spinning, and each of a step's hundreds
of parallel regions waits for them to wake up: a quarter of the speed on two cores
(`benchmarks/http_cost.py`). So everything that computes, loading a model included, runs here.
"""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class EngineThread:
    """Runs calls one after another. It does not keep a process alive."""

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
            except BaseException as error:  # raised again where the result is taken
                future.set_exception(error)
            del future, call  # else they would live until the next call

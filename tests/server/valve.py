"""An engine that stops where a test wants it to, so that nothing depends on the clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from outdraft import Engine


class Valve:
    """Stands before an engine's forward pass. Put it in before the engine is served."""

    def __init__(self, engine: Engine) -> None:
        self._run: Callable[..., Any] = engine._runner.run
        self._is_open = threading.Event()
        self._is_open.set()
        self._error: BaseException | None = None
        engine._runner.run = self._pass

    @contextmanager
    def closed(self) -> Iterator[None]:
        """No step ends inside, until `open` or `break_with`; behind it everything flows."""
        self._is_open.clear()
        try:
            yield
        finally:
            self._is_open.set()

    def open(self) -> None:
        self._is_open.set()

    def break_with(self, error: BaseException) -> None:
        """The step that waits, and every later one, ends with this error."""
        self._error = error
        self._is_open.set()

    def _pass(self, *args: Any) -> Any:
        assert self._is_open.wait(timeout=60), "nobody opened the valve"
        if self._error is not None:
            raise self._error
        return self._run(*args)

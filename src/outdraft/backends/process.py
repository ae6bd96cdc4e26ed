"""Starts an engine, waits until it answers, notices its end, and leaves nothing behind.

    with start(backend, serving, speculation, log=Path("engine.log")) as engine:
        … requests to engine.url …
        if reason := engine.died():
            …

The engine runs under a guard (`guard.py`): it ends with us even when we are killed.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

from outdraft.backends import engine_log, guard
from outdraft.backends.backend import Backend, Launch, Serving
from outdraft.backends.flags import HOST
from outdraft.errors import BackendError, CrowdedGpuError
from outdraft.observe import RemoteServer
from outdraft.speculation import Speculation
from outdraft.whole_file import write_text

_POLL_S = 0.25
_LONGEST_START = 4  # times the limit, where the log goes on
_QUIET_S = 30.0  # a log that says nothing for so long does not go on
GRACE_S = 5.0  # between SIGTERM and SIGKILL
_LAST_S = 5.0  # for a guard to end after that
_ATTEMPTS = 3  # a free port may be taken by somebody else before the engine has it

VISIBLE = "CUDA_VISIBLE_DEVICES"

OnWait = Callable[[float, str], None]  # seconds since the start, the log's last line


class EngineProcess:
    """A started engine. `start` gives one that is healthy."""

    def __init__(
        self, name: str, launch: Launch, port: int, log: Path, grace_s: float = GRACE_S
    ) -> None:
        self.name = name
        self.launch = launch
        self.url = f"http://{HOST}:{port}"
        self.log = log
        self._grace_s = grace_s
        self._is_stopped = False
        self._reports = ""  # of the guard: lines `failed WHY` or `exit CODE`
        self._reason: str | None = None  # of its end
        for path, text in launch.files.items():
            write_text(Path(path), text)
        self._status, status_fd = os.pipe()
        os.set_blocking(self._status, False)
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as output:
                self._guard = subprocess.Popen(
                    # -I: nothing of the user's Python settings reaches the guard itself
                    [sys.executable, "-I", guard.__file__, str(os.getpid()), str(status_fd),
                     str(grace_s), *launch.argv],
                    stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT,
                    env={**os.environ, **launch.env}, pass_fds=(status_fd,),
                    start_new_session=True,  # a Control-C in our terminal is ours
                )  # fmt: skip
        except OSError as error:
            os.close(self._status)
            raise BackendError(
                f"cannot start {name}: {error.strerror or error} ({error.filename or log})"
            ) from error
        finally:
            os.close(status_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def processes(self) -> list[int]:
        """The engine's processes, the first one first; empty when it has ended."""
        return sorted(guard.descendants(self._guard.pid))

    def died(self) -> str | None:
        """Why it has ended, in one line; None while it runs, or after `stop`."""
        code = None if self._is_stopped else self._exit_code()
        if code is not None and self._reason is None:
            self._reason = self._why(code)  # once: others may still write to the log
        return None if code is None else self._reason

    def _why(self, code: int | str) -> str:
        if isinstance(code, str):
            return f"cannot start {self.name}: {code} ({self.launch.argv[0]})"
        lines = engine_log.ending(self.log)
        why = engine_log.reason(lines)
        detail = f': "{why}"' if why else ", and its log is empty"
        if engine_log.out_of_memory(lines):
            how = f"ran out of memory ({_ending(code)})"
        elif code == -signal.SIGKILL and engine_log.ended_itself(lines):
            how = "ended itself"
        elif code == -signal.SIGKILL:
            how = "was killed (signal 9): by the system, out of memory, or by somebody"
            detail = f'; its last line is "{lines[-1]}"' if lines else ""
        else:
            how = _ending(code)
        return f"{self.name} {how}{detail}; its log is {self.log}"

    def stop(self) -> None:
        """SIGTERM, then SIGKILL; returns when nothing of the engine is left."""
        if self._is_stopped:
            return
        self._is_stopped = True
        os.close(self._status)
        stdin = self._guard.stdin
        assert stdin is not None
        with suppress(OSError):
            stdin.close()  # the guard sees it and does the rest
        try:
            self._guard.wait(self._grace_s + _LAST_S)
        except subprocess.TimeoutExpired:
            for pid in [*guard.descendants(self._guard.pid), self._guard.pid]:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self._guard.wait()

    def _exit_code(self) -> int | str | None:
        """None while it runs; a text where it could not be started at all."""
        with suppress(BlockingIOError):
            while more := os.read(self._status, 1024):
                self._reports += more.decode(errors="replace")
        for line in self._reports.splitlines():
            word, _, rest = line.partition(" ")
            if word == "failed":
                return rest
            if word == "exit":
                return int(rest)
        # A guard that is gone without a word was killed, and its engine with it.
        return -signal.SIGKILL if self._guard.poll() is not None else None

    def wait_until_healthy(self, limit_s: float, on_wait: OnWait | None = None) -> None:
        """BackendError when it ends first, or is not healthy within `limit_s` seconds. While its
        log goes on it has longer, `_LONGEST_START` times as long at most."""
        began, server = time.monotonic(), RemoteServer(self.url)
        size, moved = 0, began
        while True:
            if reason := self.died():
                is_crowded = engine_log.is_gpu_crowded(engine_log.ending(self.log))
                raise (CrowdedGpuError if is_crowded else BackendError)(reason)
            if server.is_ready():
                return
            now = time.monotonic()
            waited, last = now - began, engine_log.last_line(self.log)
            if (new_size := engine_log.num_bytes(self.log)) != size:
                size, moved = new_size, now
            is_quiet = now - moved > min(_QUIET_S, limit_s)
            if waited > (limit_s if is_quiet else _LONGEST_START * limit_s):
                detail = f'; its last line is "{last}"' if last else ""
                raise BackendError(
                    f"{self.name} was not healthy within {waited:.0f} s{detail}; "
                    f"its log is {self.log}; --start-limit gives it longer"
                )
            if on_wait is not None:
                on_wait(waited, last)
            time.sleep(_POLL_S)


def start(
    backend: Backend,
    serving: Serving,
    speculation: Speculation,
    *,
    log: Path,
    limit_s: float = 600.0,
    grace_s: float = GRACE_S,
    on_wait: OnWait | None = None,
) -> EngineProcess:
    """A healthy engine at a free port. BackendError with the engine's own reason if it fails."""
    for attempt in range(_ATTEMPTS):
        port = free_port()
        launch = backend.launch(serving, speculation, port)
        if serving.gpus:
            launch = replace(launch, env={**launch.env, VISIBLE: ",".join(serving.gpus)})
        engine = EngineProcess(backend.name, launch, port, log, grace_s)
        try:
            engine.wait_until_healthy(limit_s, on_wait)
            return engine
        except BaseException as error:
            engine.stop()
            is_last = attempt + 1 == _ATTEMPTS or not isinstance(error, BackendError)
            if is_last or not engine_log.is_address_taken(engine_log.tail(log)):
                raise
    raise AssertionError("the last attempt returns or raises")


def free_port() -> int:
    with socket.socket() as at:
        at.bind((HOST, 0))
        return int(at.getsockname()[1])


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    return f"was ended by {engine_log.signal_name(-code)}"

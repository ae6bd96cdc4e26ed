"""Engines that are up: started by a backend, spoken to over HTTP."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Protocol

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.process import start
from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Endpoint, Request, optional_fields
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import LoadRun
from outdraft.measure.gauges import Sample, polled_gauges, wait_until_idle
from outdraft.measure.main_memory import resident_memory
from outdraft.observe import Page
from outdraft.speculation import Speculation

# After each answer: how many of a block's requests have one, and how many there are. It must be
# quick: the client waits for it.
OnAnswer = Callable[[int, int], None]


class Process(Protocol):
    """What serves at a URL."""

    @property
    def url(self) -> str: ...
    def died(self) -> str | None: ...
    def processes(self) -> list[int]: ...
    def stop(self) -> None: ...


class RunningEngine:
    """An engine that is up. Requests reach it over HTTP."""

    def __init__(
        self,
        process: Process,
        *,
        stop_at_eos: bool = False,
        api_key: str | None = None,
        on_answer: OnAnswer = lambda done, total: None,
    ) -> None:
        self._process = process
        self._on_answer = on_answer
        optional = optional_fields(stop_at_eos=stop_at_eos)
        endpoint = Endpoint(process.url, api_key=api_key, optional=optional)
        self._endpoint = replace(endpoint, model=endpoint.server.identify().model)

    def send(self, requests: Sequence[Request], concurrency: int | None, k: int | None) -> LoadRun:
        """Sends requests and waits for the end. `k`: the draft length that each request names."""
        endpoint = self._endpoint
        if k is not None:
            endpoint = replace(endpoint, extra={**endpoint.extra, "speculation": {"k": k}})
        total, done = sum(not each.is_filler for each in requests), count(1)
        run = run_load(
            endpoint,
            requests,
            concurrency=concurrency,
            sink=lambda record: self._on_answer(next(done), total),
        )
        if run.is_stopped:  # by Control-C, which is no failure of the arm
            raise KeyboardInterrupt
        return run

    def forget(self, path: str) -> None:
        self._endpoint.server.forget(path)

    def post(self, path: str, body: str, limit_s: float) -> None:
        self._endpoint.server.post(path, body, limit_s)

    def polled(self, every_s: float) -> AbstractContextManager[list[Sample]]:
        """What its gauges say while it has requests."""
        return polled_gauges(self._endpoint.server, every_s)

    def wait_until_idle(self, idle_path: str = "") -> None:
        """Gives up after two seconds. `idle_path`: where the engine says it better than its gauges
        do (`Capabilities.idle_path`)."""
        if not idle_path:
            wait_until_idle(self._endpoint.server)
            return
        with suppress(BackendError):
            self.forget(idle_path)

    def metrics(self) -> Page:
        return self._endpoint.server.metrics()

    def died(self) -> str | None:
        """Why it is no longer up; None while it is."""
        return self._process.died()

    def resident_bytes(self) -> int:
        return resident_memory(self._process.processes())

    def stop(self) -> None:
        self._process.stop()


# Starts an engine with a speculation; the name is for its log and messages.
StartEngine = Callable[[Speculation, str], RunningEngine]
OnWait = Callable[[str, float, str], None]  # name, seconds since the start, last line of the log


def engine_starter(
    backend: Backend,
    serving: Serving,
    logs: Path,
    on_wait: OnWait = lambda *_: None,
    *,
    limit_s: float = 600.0,  # for each start
    stop_at_eos: bool = False,
    on_answer: OnAnswer = lambda done, total: None,
) -> StartEngine:
    """Starts processes of the backend, with a log for each under `logs`."""
    # Draft lengths that share a process would find each other's prompts in its cache.
    serving = replace(serving, has_prefix_cache=not backend.capabilities().shares_process)

    def start_engine(speculation: Speculation, name: str) -> RunningEngine:
        file_name = "".join(each if each.isalnum() or each in "._=-" else "-" for each in name)
        process = start(
            backend,
            serving,
            speculation,
            log=logs / f"{file_name}.log",
            limit_s=limit_s,
            on_wait=lambda seconds, line: on_wait(name, seconds, line),
        )
        try:
            return RunningEngine(process, stop_at_eos=stop_at_eos, on_answer=on_answer)
        except BaseException:
            process.stop()
            raise

    return start_engine

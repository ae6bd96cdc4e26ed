"""Real engines: starts one for an arm, proves that it speculates, measures a block on it.

Our own engine takes a draft length per request, so one process serves every draft length of a
proposer, and all proposers stay up side by side: only one of them has requests at a time. Those
that are measured one after the other are started first. Other engines are started for each arm,
one at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.process import EngineProcess, start
from outdraft.backends.speculated import REPEATING, why_not_as_asked
from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.quality import judge
from outdraft.loadgen.request import requests_of
from outdraft.measure.blocks import Blocks
from outdraft.measure.server import metrics_of, model_of
from outdraft.metrics_page import difference, drafted, step_seconds
from outdraft.speculation import Speculation
from outdraft.tune.arm import Load, name_of, proposer_name
from outdraft.tune.journal import Block, Failure
from outdraft.tune.memory import available_bytes, resident_bytes
from outdraft.workload.arrivals import poisson
from outdraft.workload.prompt import Message, Planned, Prompt

_PROOF_TOKENS = 48
_ROOM = 1.5  # times what the largest engine takes must be free to start another one
Wait = Callable[[str, float, str], None]  # arm, seconds since its start, its log's last line


@dataclass(slots=True)
class _Server:
    process: EngineProcess
    endpoint: Endpoint
    step_seconds: dict[int, float] = field(default_factory=dict)


class Lab:
    def __init__(
        self,
        backend: Backend,
        serving: Serving,
        blocks: Mapping[str, Blocks],  # name of a load → its requests
        *,
        longest: int,  # draft length that servers are started with
        logs: Path,
        start_limit_s: float = 600.0,
        on_wait: Wait = lambda arm, seconds, line: None,
    ) -> None:
        self._backend = backend
        # Draft lengths that share a process would find each other's prompts in its cache.
        no_cache = ("--no-enable-prefix-caching",) if backend.name == "outdraft" else ()
        self._serving = replace(serving, extra=(*serving.extra, *no_cache))
        self._blocks = blocks
        self._longest = longest
        self._logs = logs
        self._start_limit_s = start_limit_s
        self._on_wait = on_wait
        self._shares = backend.name == "outdraft"  # draft lengths share a process
        self._servers: dict[str, _Server] = {}
        self._broken: dict[str, str] = {}  # why it could not be started, by server
        self._ahead_s: dict[str, float] = {}  # starts that were made ahead, by server

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for server in self._servers.values():
            server.process.stop()
        self._servers.clear()

    def prepare(self, arms: Sequence[Speculation]) -> None:
        """Starts the engines of arms that are measured next, as far as they fit side by side.

        What is compared is then measured in one go, without starts in between in which the machine
        may change. What a start took counts for its first block, and so does what went wrong.
        """
        for arm in arms if self._shares else ():
            key = self._key(arm)
            if key in self._servers or key in self._broken:
                continue
            if not self._has_room():
                return
            began = time.monotonic()
            with suppress(OutdraftError):
                self._server(arm)
            self._ahead_s[key] = time.monotonic() - began

    def measure(self, load: Load, arm: Speculation, block: int) -> Block | Failure:
        """One block, or why there is none: an engine's failure is a result of its arm."""
        began = time.monotonic() - self._ahead_s.pop(self._key(arm), 0.0)
        name = name_of(arm)
        try:
            server = self._server(arm)
            start_s = time.monotonic() - began
            found = self._run(server, load, arm, block)
        except OutdraftError as error:
            self._drop(arm)
            return Failure(load.name, name, str(error), time.monotonic() - began)
        reason = server.process.died()
        if reason is None and not any(each.ok for each in found.records):
            reason = f"every request failed ({found.records[-1].error})" if found.records else "?"
        if reason is not None:
            self._drop(arm)
            return Failure(load.name, name, reason, time.monotonic() - began)
        return replace(found, duration_s=time.monotonic() - began, start_s=start_s)

    # ------------------------------------------------------------ servers

    def _key(self, arm: Speculation) -> str:
        return proposer_name(arm) if self._shares else name_of(arm)

    def _server(self, arm: Speculation) -> _Server:
        key = self._key(arm)
        if key in self._servers and self._servers[key].process.died() is not None:
            self._drop(arm)  # while it had nothing to do: no word on what it does
        if key in self._servers:
            self._servers[key] = server = self._servers.pop(key)  # the last used is the last
            return server
        if key in self._broken:  # the same command again would end the same
            raise OutdraftError(self._broken[key])
        try:
            return self._started(key, arm)
        except OutdraftError as error:
            self._drop(arm)  # it may be up, and not do what it should
            self._broken[key] = str(error)
            raise

    def _started(self, key: str, arm: Speculation) -> _Server:
        if not self._shares:
            self.close()
        self._make_room()
        asked = arm
        if self._shares and not arm.is_off and not arm.schedule:
            asked = replace(arm, k=self._longest)
        process = start(
            self._backend,
            self._serving,
            asked,
            log=self._logs / f"{_file_name(key)}.log",
            limit_s=self._start_limit_s,
            on_wait=lambda seconds, line: self._on_wait(key, seconds, line),
        )
        endpoint = Endpoint(process.url)
        endpoint = replace(endpoint, model=model_of(endpoint))
        self._servers[key] = server = _Server(process, endpoint)
        if asked.is_off or asked.k_at(1) > 0:  # else a lone request gets no drafts, as it should
            self._prove(server, asked)
        server.step_seconds = step_seconds(metrics_of(endpoint))
        return server

    def _make_room(self) -> None:
        """Another engine takes as much as the largest that is up; the longest unused ones go."""
        while not self._has_room():
            oldest = next(iter(self._servers))
            self._servers.pop(oldest).process.stop()

    def _has_room(self) -> bool:
        servers = self._servers.values()
        largest = max((resident_bytes(each.process.processes()) for each in servers), default=0)
        free = available_bytes()
        return not servers or free is None or free > _ROOM * largest

    def _prove(self, server: _Server, asked: Speculation) -> None:
        """A first request, that everything can draft for; the counters must say that it did."""
        before = metrics_of(server.endpoint)
        prompt = Prompt("warm-up", "warm-up", (Message("user", REPEATING),), _PROOF_TOKENS)
        planned = Planned(prompt, 0.0, _PROOF_TOKENS, seed=0)
        run = run_load(
            server.endpoint, requests_of([planned], is_warmup=True), concurrency=1, keep_text=False
        )
        if run.is_stopped:
            raise KeyboardInterrupt
        if not any(each.ok for each in run.records):
            raise OutdraftError(f"the first request failed ({run.records[-1].error})")
        reason = why_not_as_asked(self._backend, asked, before, metrics_of(server.endpoint))
        if reason is not None:
            raise OutdraftError(reason)

    def _drop(self, arm: Speculation) -> None:
        server = self._servers.pop(self._key(arm), None)
        if server is not None:
            server.process.stop()

    # ------------------------------------------------------------ a block

    def _run(self, server: _Server, load: Load, arm: Speculation, block: int) -> Block:
        name = name_of(arm)
        plan = self._blocks[load.name].requests(block)
        if load.rate is not None:
            times = poisson(load.rate, len(plan), block)
            plan = [replace(each, offset_ns=at) for each, at in zip(plan, times, strict=True)]
        endpoint = server.endpoint
        if self._shares and not arm.is_off and not arm.schedule:
            extra: dict[str, Any] = {**endpoint.extra, "speculation": {"k": arm.k}}
            endpoint = replace(endpoint, extra=extra)
        before = metrics_of(endpoint)
        run = run_load(
            endpoint,
            requests_of(plan, arm=name, block=block),
            concurrency=load.concurrency,
            keep_text=True,
        )
        if run.is_stopped:
            raise KeyboardInterrupt
        done = tuple(each for each in run.records if each.ok)
        quality = judge(replace(run, records=done, num_planned=len(done))) if done else None
        return Block(
            load=load.name,
            arm=name,
            block=block,
            duration_s=0.0,
            records=run.records,
            problems=() if quality is None or quality.is_valid else quality.problems,
            counted=drafted(difference(metrics_of(endpoint), before)),
            step_seconds=server.step_seconds,
        )


def _file_name(arm: str) -> str:
    """A name that every file system takes."""
    return "".join(each if each.isalnum() or each in "._=-" else "-" for each in arm)

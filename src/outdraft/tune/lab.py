"""Measures blocks on real engines: starts one for an arm, checks that it speculates, sends load.

An engine that takes a draft length with each request serves every draft length of a proposer from
one process, and the processes of all proposers stay up side by side; only one of them has requests
at a time. Other engines are started for each arm, one at a time.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

from outdraft.backends.backend import Backend, Serving
from outdraft.backends.process import EngineProcess, start
from outdraft.backends.proof import REPEATING, speculation_mismatch
from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint, Request, make_requests, optional_fields
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import LoadRun
from outdraft.loadgen.quality import assess_client
from outdraft.observe import Page, page_difference, read_acceptance, read_step_seconds
from outdraft.speculation import Speculation
from outdraft.tune.arm import Load, name_of, proposer_name
from outdraft.tune.journal import Block, Failure
from outdraft.workload.arrivals import poisson
from outdraft.workload.plan import Blocks
from outdraft.workload.prompt import Message, Planned, Prompt

_PROOF_TOKENS = 48
_ROOM = 1.5  # times the largest engine's memory must be free to start another one
_START_LIMIT_S = 600.0


def available_memory() -> int | None:
    """Bytes that can be used without swapping; None where the system does not say."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def resident_memory(pids: Iterable[int]) -> int:
    """Bytes of all these processes together; on Linux only."""
    pages = 0
    for pid in pids:
        with suppress(OSError, ValueError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class RunningEngine:
    """An engine that is up. Requests reach it over HTTP."""

    def __init__(self, process: EngineProcess, *, stop_at_eos: bool = False) -> None:
        self._process = process
        endpoint = Endpoint(process.url, optional=optional_fields(stop_at_eos=stop_at_eos))
        self._endpoint = replace(endpoint, model=endpoint.server.identify().model)

    def send(self, requests: Sequence[Request], concurrency: int | None, k: int | None) -> LoadRun:
        """Sends requests and waits for the end. `k`: the draft length that each request names."""
        endpoint = self._endpoint
        if k is not None:
            endpoint = replace(endpoint, extra={**endpoint.extra, "speculation": {"k": k}})
        run = run_load(endpoint, requests, concurrency=concurrency)
        if run.is_stopped:  # by Control-C, which is no failure of the arm
            raise KeyboardInterrupt
        return run

    def forget(self, path: str) -> None:
        self._endpoint.server.forget(path)

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


class Lab(AbstractContextManager["Lab"]):
    """The engines that are up, and the requests that are sent to them."""

    def __init__(
        self,
        backend: Backend,
        blocks: Mapping[str, Blocks],  # name of a load → its requests
        start_engine: StartEngine,
        *,
        longest: int,  # draft length that shared processes are started with
        keeps_memory: bool = False,  # answers of a block may help in the next
        available_bytes: Callable[[], int | None] = available_memory,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backend = backend
        self._shares_process = backend.capabilities().shares_process
        self._forget_paths = {} if keeps_memory else backend.capabilities().forget_paths
        self._blocks = blocks
        self._start_engine = start_engine
        self._longest = longest
        self._available_bytes = available_bytes
        self._clock = clock
        self._engines: dict[str, RunningEngine] = {}  # the last used is the last
        self._step_seconds: dict[str, dict[int, float]] = {}
        self._broken: dict[str, str] = {}  # engines that could not be started, and why
        self._started_ahead_s: dict[str, float] = {}  # seconds of starts made by `prepare`

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        for engine in self._engines.values():
            engine.stop()
        self._engines.clear()

    def prepare(self, arms: Sequence[Speculation]) -> None:
        """Starts the engines of arms that are measured next, as far as they fit side by side.

        Arms that are compared are then measured without starts in between, during which the
        machine may change. The time of a start, or its failure, counts for the arm's first block.
        Off is started last: of two equal processes the one that was started first can be some
        percent slower, which would be taken for a speedup.
        """
        for arm in sorted(arms, key=lambda each: each.is_off) if self._shares_process else ():
            key = self._key(arm)
            if key in self._engines or key in self._broken:
                continue
            if not self._has_room():
                return
            began = self._clock()
            with suppress(OutdraftError):
                self._engine(arm)
            self._started_ahead_s[key] = self._clock() - began

    def measure(self, load: Load, arm: Speculation, block: int) -> Block | Failure:
        """One block, or why there is none: an engine's failure is a result of its arm."""
        began = self._clock() - self._started_ahead_s.pop(self._key(arm), 0.0)
        try:
            engine = self._forgetful_engine(arm)
            start_s = self._clock() - began
            measured = self._run(engine, load, arm, block)
            reason = engine.died()
            if reason is None and not any(each.ok for each in measured.records):
                error = measured.records[-1].error if measured.records else "nothing was sent"
                reason = f"every request failed ({error})"
        except OutdraftError as error:
            reason = str(error)
        if reason is not None:
            self._drop(arm)
            return Failure(load.name, name_of(arm), reason, self._clock() - began)
        return replace(measured, duration_s=self._clock() - began, start_s=start_s)

    def _forgetful_engine(self, arm: Speculation) -> RunningEngine:
        """An arm's engine, without the answers of earlier blocks."""
        path = self._forget_paths.get(arm.method)  # None: it remembers none
        if path == "":
            self._drop(arm)
        engine = self._engine(arm)
        if path:
            engine.forget(path)
        return engine

    def _key(self, arm: Speculation) -> str:
        """Arms with the same key are served by the same process."""
        return proposer_name(arm) if self._shares_process else name_of(arm)

    def _names_k(self, arm: Speculation) -> bool:
        """Whether each request names the draft length; a schedule is the engine's own."""
        return self._shares_process and not arm.is_off and not arm.schedule

    def _engine(self, arm: Speculation) -> RunningEngine:
        key = self._key(arm)
        if key in self._engines and self._engines[key].died() is not None:
            self._drop(arm)  # it ended while it was idle, which is no result of the arm
        if key in self._broken:  # the same command would fail again
            raise OutdraftError(self._broken[key])
        try:
            self._engines[key] = engine = self._engines.pop(key, None) or self._start(key, arm)
        except OutdraftError as error:
            self._drop(arm)  # it may be up without doing what it should
            self._broken[key] = str(error)
            raise
        return engine

    def _start(self, key: str, arm: Speculation) -> RunningEngine:
        if not self._shares_process:
            self.close()
        while not self._has_room():  # the ones that were not used for longest go
            self._engines.pop(next(iter(self._engines))).stop()
        speculation = replace(arm, k=self._longest) if self._names_k(arm) else arm
        self._engines[key] = engine = self._start_engine(speculation, key)
        # Where the schedule leaves speculation off for a single request there is nothing to check.
        if speculation.is_off or speculation.k_at(1) > 0:
            self._check_speculation(engine, speculation)
        self._step_seconds[key] = read_step_seconds(engine.metrics())
        return engine

    def _has_room(self) -> bool:
        """For an engine as large as the largest one that is up."""
        largest = max((each.resident_bytes() for each in self._engines.values()), default=0)
        free = self._available_bytes()
        return not self._engines or free is None or free > _ROOM * largest

    def _check_speculation(self, engine: RunningEngine, speculation: Speculation) -> None:
        """Sends a first request that every proposer can draft for. The counters must show drafts,
        or none where speculation is off."""
        before = engine.metrics()
        prompt = Prompt("warm-up", "warm-up", (Message("user", REPEATING),), _PROOF_TOKENS)
        planned = Planned(prompt, 0.0, _PROOF_TOKENS, seed=0)
        run = engine.send(make_requests([planned], is_warmup=True), 1, None)
        if not any(each.ok for each in run.records):
            raise OutdraftError(f"the first request failed ({run.records[-1].error})")
        reason = speculation_mismatch(self._backend, speculation, before, engine.metrics())
        if reason is not None:
            raise OutdraftError(reason)

    def _drop(self, arm: Speculation) -> None:
        if engine := self._engines.pop(self._key(arm), None):
            engine.stop()

    def _run(self, engine: RunningEngine, load: Load, arm: Speculation, block: int) -> Block:
        plan = self._blocks[load.plan_name].requests(block)
        if load.rate is not None:
            times = poisson(load.rate, len(plan), block)
            plan = [replace(each, offset_ns=at) for each, at in zip(plan, times, strict=True)]
        before = engine.metrics()
        requests = make_requests(plan, arm=name_of(arm), block=block)
        if self._shares_process and (load.concurrency or 1) > 1:
            # Without them the last requests of a faster arm would have the machine for themselves.
            # Counters of other servers would count them too.
            spare = make_requests(self._blocks[load.plan_name].requests(-1))
            requests += [replace(each, is_filler=True) for each in spare]
        run = engine.send(requests, load.concurrency, arm.k if self._names_k(arm) else None)
        quality = assess_client(run)
        return Block(
            load.name,
            name_of(arm),
            block,
            duration_s=0.0,  # the caller knows
            records=run.records,
            problems=() if quality is None or quality.is_valid else quality.problems,
            counted=read_acceptance(page_difference(engine.metrics(), before)),
            step_seconds=self._step_seconds[self._key(arm)],
        )


def engine_starter(
    backend: Backend,
    serving: Serving,
    logs: Path,
    on_wait: OnWait = lambda *_: None,
    *,
    stop_at_eos: bool = False,
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
            limit_s=_START_LIMIT_S,
            on_wait=lambda seconds, line: on_wait(name, seconds, line),
        )
        try:
            return RunningEngine(process, stop_at_eos=stop_at_eos)
        except BaseException:
            process.stop()
            raise

    return start_engine

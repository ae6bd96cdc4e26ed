"""Engines on a stage: a Lab's engines with planted start times, speed and memory, on one clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from outdraft.backends.installation import Installation
from outdraft.backends.vllm.backend import Vllm
from outdraft.errors import BackendError, CrowdedGpuError
from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.loadgen.load import LoadRun
from outdraft.measure.gauges import RUNNING, Sample
from outdraft.measure.plateau import find_plateau
from outdraft.observe import Page
from outdraft.records import Record
from outdraft.speculation import Speculation
from outdraft.testing.fake_script import Script
from tests.measure.simulated import Simulated

from .planted import Truth

URL = "http://staged"
OFF_SCRIPT = Script(ttft_s=0.1, tpot_s=0.025, prompt_spread=0.2, noise=0.03)
VLLM = Vllm(Installation("0.22.1", frozenset({"--enable-sleep-mode"})))
VLLM_ON_CPU = Vllm(Installation("0.22.1", frozenset(), device="cpu"))


@dataclass
class Stage:
    """What engines are there, and what became of them."""

    truths: Mapping[str, Truth]  # by method
    start_s: float = 90.0
    switch_s: float = 0.3  # to fall asleep, and to wake up
    dies_asleep: Collection[str] = ()  # names of arms
    does_not_wake: Collection[str] = ()
    other_memory: Collection[str] = ()  # wakes with half of its KV cache
    memory: Mapping[str, int] = field(default_factory=dict)  # bytes of main memory, if not 1 GiB
    sleepers_held: int | None = None  # by a GPU, beside the one that is started; None: any number
    loses_drafts: Collection[str] = ()  # after their sleep nobody accepts anything
    slowness: Callable[[int], float] = lambda start: 1.0  # of the engine of a start, by its number
    of_cards: Sequence[float] = (1.0,)  # how slow each is
    most_running: Mapping[str, int] = field(default_factory=dict)  # name of an arm → its own limit
    clock: float = 0.0
    busy_s: float = 0.0  # in which requests ran
    starts: Counter[str] = field(default_factory=Counter)
    events: list[tuple[str, str]] = field(default_factory=list)  # what, name of the arm
    up: list[StagedEngine] = field(default_factory=list)

    def on(self, card: int) -> Callable[[Speculation, str], StagedEngine]:
        return lambda speculation, name: self.start(speculation, name, card)

    def start(self, speculation: Speculation, name: str, card: int = 0) -> StagedEngine:
        assert all(each.is_asleep for each in self.up), "one is awake at a time"
        self.clock += self.start_s
        if self.sleepers_held is not None and len(self.up) > self.sleepers_held:
            self.events.append(("crowded", name))
            raise CrowdedGpuError("vllm ran out of memory")
        self.starts[name] += 1
        self.events.append(("start", name))
        self.up.append(StagedEngine(self, speculation, name, card))
        return self.up[-1]


class StagedEngine:
    def __init__(self, stage: Stage, speculation: Speculation, name: str, card: int) -> None:
        self._stage, self._speculation, self.name, self.card = stage, speculation, name, card
        self.is_asleep = self.has_slept = False
        self._page: Page = {}
        self._samples: list[Sample] = []
        self._number = 0
        self._slowness = stage.slowness(stage.starts.total()) * stage.of_cards[card]

    def send(self, requests: Sequence[Request], concurrency: int | None, k: int | None) -> LoadRun:
        assert not self.is_asleep
        stage, running = self._stage, concurrency or 1
        is_new_load = not stage.events or stage.events[-1] != ("load", self.name)
        stage.events += [("load", self.name)] if is_new_load else []
        self._number += 1
        slow = self._slowness
        script = replace(
            OFF_SCRIPT,
            seed=self._number,
            ttft_s=slow * OFF_SCRIPT.ttft_s,
            tpot_s=slow * OFF_SCRIPT.tpot_s,
        )
        counted = [each for each in requests if not each.is_filler]
        if not self._speculation.is_off:
            truth = stage.truths[self._speculation.method]
            is_broken = self.has_slept and self.name in stage.loses_drafts
            chance = 0.0 if is_broken else truth.chance
            cost = truth.cost(self._speculation.k, running)
            script = replace(script, k=self._speculation.k, acceptance=chance, round_cost=cost)
        run = Simulated({URL: script})(Endpoint(URL), counted, concurrency=concurrency or 4)
        self._look(run.records, running)
        took = (max(each.last_ns or 0 for each in run.records) - 10**9) / 1e9
        stage.clock += took
        stage.busy_s += took
        for each in run.records:
            if each.acceptance is not None:
                self._count("draft_tokens", each.acceptance.num_draft_tokens)
                self._count("accepted_tokens", each.acceptance.num_accepted_tokens)
                self._count("drafts", each.acceptance.num_drafts)
        return replace(run, num_planned=len(run.records))

    def _count(self, name: str, value: int) -> None:
        key = f"vllm:spec_decode_num_{name}_total"
        self._page[key] = self._page.get(key, 0.0) + value

    @contextmanager
    def polled(self, every_s: float) -> Iterator[list[Sample]]:
        self._samples = []
        yield self._samples

    def _look(self, records: Sequence[Record], concurrency: int) -> None:
        """Once a second: slots are being filled at first, then as many run as the engine takes."""
        start, end = (
            min(each.scheduled_ns for each in records),
            max(each.last_ns or 0 for each in records),
        )
        most = min(concurrency, self._stage.most_running.get(self.name, concurrency))
        if plateau := find_plateau(records):
            self._samples += [
                Sample(at, RUNNING, most if at >= plateau.start_ns else 1)
                for at in range(start, end, 10**9)
            ]

    def wait_until_idle(self, idle_path: str = "") -> None:
        assert not self.is_asleep

    def metrics(self) -> Page:
        is_less = self.has_slept and self.name in self._stage.other_memory
        blocks = f'vllm:cache_config_info{{num_gpu_blocks="{300 if is_less else 600}"}}'
        return {**self._page, blocks: 1.0}

    def post(self, path: str, body: str, limit_s: float) -> None:
        stage = self._stage
        stage.clock += stage.switch_s
        if "sleep" in path:
            assert not self.is_asleep
            self.is_asleep = self.has_slept = True
        else:
            assert self.is_asleep
            if self.name in stage.does_not_wake:
                raise BackendError("http 500")
            assert all(each.is_asleep for each in stage.up), "one is awake at a time"
            self.is_asleep = False
        stage.events.append(("sleep" if self.is_asleep else "wake", self.name))

    def died(self) -> str | None:
        gone = self.is_asleep and self.name in self._stage.dies_asleep
        return "vllm was killed (signal 9)" if gone else None

    def forget(self, path: str) -> None:
        raise AssertionError("nothing is remembered here")

    def resident_bytes(self) -> int:
        return self._stage.memory.get(self.name, 1 << 30)

    def stop(self) -> None:
        self._stage.events.append(("stop", self.name))
        self._stage.up.remove(self)

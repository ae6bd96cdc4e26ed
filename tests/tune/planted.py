"""Engines that are played, not started: planted acceptance and costs, on a clock of their own."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import as_file, files

from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.speculation import Speculation
from outdraft.testing.fake_script import Script
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure
from outdraft.workload.files import read_prompts
from outdraft.workload.plan import Blocks, make_blocks
from outdraft.workload.prompt import Prompt
from outdraft.workload.sets import built_in
from tests.measure.simulated import Simulated
from tests.planted_rounds import expected_tokens_at

MAX_TOKENS = 160
URL = "http://planted"


@dataclass(frozen=True)
class Truth:
    """Of one method."""

    chance: float  # of a draft token to be accepted
    draft: float  # cost of a draft token, in plain steps
    verify: Callable[[int, int], float] = lambda tokens, running: 1.0  # in plain steps

    def cost(self, k: int, running: int) -> float:
        return k * self.draft + self.verify(k + 1, running)

    def speedup(self, k: int, running: int) -> float:
        return expected_tokens_at(self.chance, k) / self.cost(k, running)


@dataclass
class Planted:
    """`measure` for a search."""

    truths: Mapping[str, Truth]  # by method
    failing: Mapping[str, str] = field(default_factory=dict)  # name of an arm → reason
    step_seconds: Mapping[int, float] = field(default_factory=dict)
    junk: Collection[str] = ()  # methods that write words of their own
    near_ties: float = 0.0  # share of all arms' texts
    noise: float = 0.03
    seconds_per_request: float = 1.0
    num_measured: int = 0

    def __post_init__(self) -> None:
        self._blocks: dict[str, Blocks] = {}

    def measure(self, load: Load, arm: Speculation, block: int) -> Block | Failure:
        self.num_measured += 1
        name = name_of(arm)
        if name in self.failing:
            return Failure(load.name, name, self.failing[name], 2.0)
        blocks = self._of(load)
        requests = make_requests(blocks.requests(block), arm=name, block=block)
        seed = zlib.crc32(f"{load.name}/{name}/{block}".encode())
        off = Script(ttft_s=0.05, tpot_s=0.02, prompt_spread=0.2, noise=self.noise, seed=seed,
                     is_junk=arm.method in self.junk, near_ties=self.near_ties)  # fmt: skip
        script = off
        running = load.concurrency or 1
        k = arm.k_at(running)
        if k:
            truth = self.truths[arm.method]
            cost = truth.cost(k, running)
            script = replace(off, k=k, acceptance=truth.chance, round_cost=cost)
        run = Simulated({URL: script})(Endpoint(URL), requests, concurrency=load.concurrency or 4)
        return Block(
            load.name,
            name,
            block,
            duration_s=self.seconds_per_request * len(requests) / (load.concurrency or 4),
            records=run.records,
            step_seconds=dict(self.step_seconds),
        )

    def _of(self, load: Load) -> Blocks:
        if load.name not in self._blocks:
            self._blocks[load.name] = make_blocks(
                chat_prompts(),
                size=8,
                count=20,
                mix=((0.0, 1.0),),
                seed=0,
                max_tokens=MAX_TOKENS,
            )
        return self._blocks[load.name]


def arms_of(methods: tuple[str, ...], ks: range) -> tuple[Speculation, ...]:
    drafts = {"draft_model": "small", "eagle": "head"}
    return tuple(
        Speculation(method, k=k, draft=drafts.get(method)) for method in methods for k in ks
    )


def chat_prompts() -> list[Prompt]:
    """The same for ever: recorded decisions depend on them."""
    with as_file(files("outdraft.distill.data") / "prompts.jsonl") as trained:
        prompts = [*read_prompts(trained), *built_in()]
    chats = [each for each in prompts if each.category == "chat" and each.id < "chat-100"]
    return sorted(chats, key=lambda each: each.id)

"""What the lab does around engines that fail; the engines themselves are played."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from outdraft.backends.backend import Backend
from outdraft.backends.installation import Installation
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import EngineProcess
from outdraft.backends.sglang.backend import Sglang
from outdraft.backends.vllm.backend import Vllm
from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Request, make_requests
from outdraft.loadgen.load import LoadRun
from outdraft.measure.gauges import Sample
from outdraft.observe import Page
from outdraft.speculation import OFF, Speculation
from outdraft.testing.fake_server import FakeServer, fake_server
from outdraft.tune import engines as lab_module
from outdraft.tune.arm import FINAL, Load, name_of
from outdraft.tune.engines import RunningEngine
from outdraft.tune.journal import Block, Failure, Start
from outdraft.tune.lab import Lab
from outdraft.workload.plan import Blocks, make_blocks
from outdraft.workload.sets import built_in

ONE = Load(concurrency=1)


class PlayedEngine:
    """As a RunningEngine, without a process. It drafts unless its speculation is off."""

    def __init__(self, engines: PlayedEngines, speculation: Speculation) -> None:
        self._engines = engines
        self._speculation = speculation
        self._num_drafted = 0
        self.is_stopped = False
        self.reason: str | None = None  # why it died
        self.dies_in_load = False

    def send(self, requests: Sequence[Request], concurrency: int | None, k: int | None) -> LoadRun:
        self._engines.sent_ks.append(k)
        if self.dies_in_load:
            self.reason = "outdraft was killed (signal 9)"
        if self._engines.is_interrupted:
            raise KeyboardInterrupt
        if not self._speculation.is_off and not self._engines.are_idle:
            self._num_drafted += 10
        records = tuple(
            each.record(0, sent_ns=0, first_ns=10**8, last_ns=10**9, completion_tokens=9)
            for each in requests
        )
        return LoadRun(records, len(requests))

    def forget(self, path: str) -> None:
        if self._engines.cannot_forget:
            raise BackendError("it does not forget")
        self._engines.forgotten.append((path, len(self._engines.sent_ks)))

    def polled(self, every_s: float) -> AbstractContextManager[list[Sample]]:
        return nullcontext([])

    def wait_until_idle(self, idle_path: str = "") -> None:
        if idle_path:
            self.forget(idle_path)

    def metrics(self) -> Page:
        drafted = float(self._num_drafted)
        return {
            "vllm:spec_decode_num_draft_tokens_total": drafted,
            "sglang:spec_verify_calls_total": drafted,
        }

    def died(self) -> str | None:
        return self.reason

    def resident_bytes(self) -> int:
        return 100

    def stop(self) -> None:
        self.is_stopped = True


class PlayedEngines:
    """Starts engines, and counts what came of it."""

    def __init__(self) -> None:
        self.engines: list[PlayedEngine] = []
        self.sent_ks: list[int | None] = []  # draft lengths that requests named, load by load
        self.forgotten: list[tuple[str, int]] = []  # path, loads sent before
        self.cannot_forget = False
        self.num_starts = 0
        self.refused = ""  # engines do not start, for this reason
        self.are_idle = False  # they draft nothing
        self.is_interrupted = False  # Control-C in the next load
        self.start_s = 0.0
        self.free_bytes: int | None = None
        self.clock = 0.0

    def start(self, speculation: Speculation, name: str) -> PlayedEngine:
        self.num_starts += 1
        self.clock += self.start_s
        if self.refused:
            raise BackendError(self.refused)
        self.engines.append(PlayedEngine(self, speculation))
        return self.engines[-1]


@pytest.fixture
def played() -> PlayedEngines:
    return PlayedEngines()


def make_lab(
    played: PlayedEngines, backend: Backend, *, keeps_memory: bool = False, load: Load = ONE
) -> Lab:
    prompts = list(built_in())[: 4 * (load.concurrency or 1)]
    blocks: Blocks = make_blocks(prompts, size=2, count=2, mix=((0.0, 1.0),), seed=0)
    return Lab(
        backend,
        {load.name: blocks},
        played.start,
        longest=8,
        keeps_memory=keeps_memory,
        available_bytes=lambda: played.free_bytes,
        clock=lambda: played.clock,
    )


@pytest.fixture
def lab(played: PlayedEngines) -> Lab:
    return make_lab(played, backend_named("outdraft"))


def test_an_engine_that_does_not_start_is_not_started_for_each_draft_length(
    lab: Lab, played: PlayedEngines
) -> None:
    played.refused = "outdraft ended with code 1"
    for k in (8, 7, 6):
        found = lab.measure(ONE, Speculation("ngram", k=k), 0)
        assert isinstance(found, Failure)
        assert found.reason == "outdraft ended with code 1"
    assert played.num_starts == 1


def test_an_engine_that_ended_while_others_were_measured_is_started_again(
    lab: Lab, played: PlayedEngines
) -> None:
    assert isinstance(lab.measure(ONE, OFF, 0), Block)
    played.engines[0].reason = "outdraft was killed (signal 9)"
    assert isinstance(lab.measure(ONE, OFF, 1), Block)
    assert played.num_starts == 2
    assert played.engines[0].is_stopped


def test_one_that_ends_within_its_block_has_failed(lab: Lab, played: PlayedEngines) -> None:
    assert isinstance(lab.measure(ONE, OFF, 0), Block)
    played.engines[0].dies_in_load = True
    found = lab.measure(ONE, OFF, 1)
    assert isinstance(found, Failure)
    assert "signal 9" in found.reason


def test_a_schedule_has_an_engine_of_its_own_and_no_draft_length_in_its_requests(
    lab: Lab, played: PlayedEngines
) -> None:
    plain = Speculation("ngram", k=4)
    lab.measure(ONE, plain, 0)
    lab.measure(ONE, replace(plain, schedule=((1, 4, 4), (5, 4096, 0))), 0)
    assert played.num_starts == 2
    assert played.sent_ks == [None, 4, None, None], "a proof and a block of each"
    off_alone = replace(plain, schedule=((1, 4, 0), (5, 4096, 4)))
    lab.measure(ONE, off_alone, 0)
    assert len(played.sent_ks) == 5, "one request alone proves nothing"


def test_control_c_in_the_first_request_is_no_failure_of_the_arm(
    lab: Lab, played: PlayedEngines
) -> None:
    played.is_interrupted = True
    with lab, pytest.raises(KeyboardInterrupt):
        lab.measure(ONE, OFF, 0)
    assert [each.is_stopped for each in played.engines] == [True]


PROPOSERS = (OFF, Speculation("ngram", k=8), Speculation("suffix", k=8))


def all_started(lab: Lab, load: Load, arms: Sequence[Speculation]) -> list[Start]:
    starts = []
    while (start := lab.prepare(load, arms)) is not None:
        starts.append(start)
    return starts


def test_engines_that_are_measured_next_are_started_first(lab: Lab, played: PlayedEngines) -> None:
    played.start_s = 10
    last_is_off = [*PROPOSERS[1:], OFF]
    assert all_started(lab, ONE, PROPOSERS) == [
        Start(ONE.name, name_of(arm), 10) for arm in last_is_off
    ]
    assert played.num_starts == 3
    for number in range(2):
        for arm in PROPOSERS:
            found = lab.measure(ONE, arm, number)
            assert isinstance(found, Block)
            assert (found.duration_s, found.start_s) == (0, 0), "the start has its own entry"
    assert played.num_starts == 3


def test_what_went_wrong_ahead_is_the_result_of_the_arm(lab: Lab, played: PlayedEngines) -> None:
    played.are_idle = True
    all_started(lab, ONE, PROPOSERS)
    assert [each.is_stopped for each in played.engines] == [True, True, False], "off is the last"
    assert isinstance(lab.measure(ONE, OFF, 0), Block)
    for arm in PROPOSERS[1:]:
        found = lab.measure(ONE, arm, 0)
        assert isinstance(found, Failure)
        assert "drafted nothing in the warm-up" in found.reason
    assert played.num_starts == 3


def test_engines_for_which_there_is_no_room_wait(lab: Lab, played: PlayedEngines) -> None:
    played.free_bytes = 149  # an engine takes 100
    all_started(lab, ONE, PROPOSERS)
    assert played.num_starts == 1, "the first needs nobody's room"
    assert isinstance(lab.measure(ONE, PROPOSERS[2], 0), Block)
    assert [each.is_stopped for each in played.engines] == [True, False]


def test_answers_are_forgotten_before_every_block(lab: Lab, played: PlayedEngines) -> None:
    for number in range(2):
        for arm in PROPOSERS:
            assert isinstance(lab.measure(ONE, arm, number), Block)
    # A proof of each, then blocks of three arms: what the proof wrote is forgotten too.
    assert played.forgotten == [("/forget", 5), ("/forget", 8)]


def test_answers_are_kept_where_that_is_wanted(played: PlayedEngines) -> None:
    lab = make_lab(played, backend_named("outdraft"), keeps_memory=True)
    for number in range(2):
        assert isinstance(lab.measure(ONE, PROPOSERS[2], number), Block)
    assert played.forgotten == []


@pytest.mark.parametrize("keeps_memory", [False, True])
def test_waiting_for_the_end_of_a_block_does_not_forget_either(
    played: PlayedEngines, keeps_memory: bool
) -> None:
    """SGLang is asked whether it is idle by what makes it forget."""
    four, sglang = Load(concurrency=4), Sglang(Installation("0.5.18", frozenset()))
    lab = make_lab(played, sglang, keeps_memory=keeps_memory, load=four)
    for number in range(2):
        assert isinstance(lab.measure(four, Speculation("ngram", k=4), number), Block)
    assert len(played.forgotten) == (0 if keeps_memory else 4)


def test_an_engine_that_does_not_forget_is_no_result(lab: Lab, played: PlayedEngines) -> None:
    played.cannot_forget = True
    found = lab.measure(ONE, PROPOSERS[2], 0)
    assert isinstance(found, Failure)
    assert found.reason == "it does not forget"


def test_an_engine_that_cannot_forget_is_started_for_each_block(played: PlayedEngines) -> None:
    old = Vllm(Installation("0.11.0", frozenset()))
    assert old.capabilities().forget_paths == {"suffix": ""}
    for keeps_memory, num_starts in ((True, 1), (False, 3)):
        played.num_starts = 0
        lab = make_lab(played, old, keeps_memory=keeps_memory)
        for number in range(3):
            assert isinstance(lab.measure(ONE, PROPOSERS[2], number), Block)
        assert played.num_starts == num_starts
    assert [each.is_stopped for each in played.engines] == [False, True, True, False]


@pytest.mark.parametrize("stop_at_eos", [False, True])
def test_answers_have_their_full_length_unless_told_otherwise(stop_at_eos: bool) -> None:
    requests = make_requests(
        make_blocks(list(built_in())[:4], size=2, count=2, mix=((0.0, 1.0),), seed=0).requests(0)
    )
    with FakeServer() as server:
        process = cast(EngineProcess, SimpleNamespace(url=server.url))
        RunningEngine(process, stop_at_eos=stop_at_eos).send(requests, 2, None)
    assert [body.get("ignore_eos") for body in server.bodies] == [None if stop_at_eos else True] * 2


def test_a_load_that_was_interrupted_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_server() as url:
        engine = RunningEngine(cast(EngineProcess, SimpleNamespace(url=url)))
        request = make_requests(
            make_blocks(list(built_in())[:4], size=2, count=2, mix=((0.0, 1.0),), seed=0).requests(
                0
            )
        )
        assert all(each.ok for each in engine.send(request, 1, None).records)
        monkeypatch.setattr(lab_module, "run_load", lambda *_, **__: LoadRun((), 2))
        with pytest.raises(KeyboardInterrupt):
            engine.send(request, 1, None)


def test_side_by_side_off_is_not_the_oldest_process_in_the_final(played: PlayedEngines) -> None:
    lab = make_lab(played, Vllm(Installation("0.22.1", frozenset(), device="cpu")))
    arm = Speculation("ngram", k=4)
    final = ONE.in_part(FINAL, name_of(arm))
    lab.blocks = {**lab.blocks, final.plan_name: lab.blocks[ONE.name]}
    for load, block in ((ONE, 0), (final, 0), (final, 1)):
        assert isinstance(lab.measure(load, OFF, block), Block)
        assert isinstance(lab.measure(load, arm, block), Block)
    assert played.num_starts == 3, "off, the arm, and off once more"
    first, _, last = played.engines
    assert first.is_stopped
    assert not last.is_stopped


def test_side_by_side_a_final_that_is_continued_starts_both_once(played: PlayedEngines) -> None:
    lab = make_lab(played, Vllm(Installation("0.22.1", frozenset(), device="cpu")))
    arm, played.start_s, starts = Speculation("ngram", k=4), 10, list[Start]()
    final = ONE.in_part(FINAL, name_of(arm))
    lab.blocks = {**lab.blocks, final.plan_name: lab.blocks[ONE.name]}
    for block in (2, 3):
        for one, other in ((OFF, arm), (arm, OFF)):
            starts += all_started(lab, final, (one, other))
            found = lab.measure(final, one, block)
            assert isinstance(found, Block)
            assert found.start_s == 0
    assert starts == [Start(final.name, name, 10) for name in (name_of(arm), "off")]
    assert played.num_starts == 2, "the arm, then off, which is not the older one"


def test_side_by_side_what_forgets_by_a_start_is_not_started_ahead(played: PlayedEngines) -> None:
    lab = make_lab(played, Vllm(Installation("0.11.0", frozenset(), device="cpu")))
    all_started(lab, ONE, PROPOSERS[::2])
    assert isinstance(lab.measure(ONE, PROPOSERS[2], 0), Block)
    assert played.num_starts == 2

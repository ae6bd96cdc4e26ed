"""What the lab does around engines that fail; the engines themselves are played."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.embedded import Embedded
from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.load import Run
from outdraft.loadgen.request import Request
from outdraft.measure.blocks import Blocks, make_blocks
from outdraft.speculation import OFF, Speculation
from outdraft.tune import lab as lab_module
from outdraft.tune.arm import Load
from outdraft.tune.journal import Block, Failure
from outdraft.tune.lab import Lab
from outdraft.workload.sets import built_in

ONE = Load(concurrency=1)


class Engine:
    """A process that is only there by name."""

    url = "http://played"

    def __init__(self) -> None:
        self.is_stopped = False
        self.reason: str | None = None

    def died(self) -> str | None:
        return self.reason

    def processes(self) -> list[int]:
        return []

    def stop(self) -> None:
        self.is_stopped = True


class Played:
    """What the lab's module calls, and what came of it."""

    def __init__(self) -> None:
        self.engines: list[Engine] = []
        self.refused = ""  # engines do not start, for this reason
        self.num_starts = 0
        self.is_interrupted = False  # Control-C in the next load

    def start(self, *_: Any, **__: Any) -> Engine:
        self.num_starts += 1
        if self.refused:
            raise BackendError(self.refused)
        self.engines.append(Engine())
        return self.engines[-1]

    def run_load(self, endpoint: Endpoint, requests: Sequence[Request], **_: Any) -> Run:
        records = tuple(
            each.record(0, sent_ns=0, first_ns=10**8, last_ns=10**9, completion_tokens=9)
            for each in requests
        )
        return Run(() if self.is_interrupted else records, len(requests), "", 0, ())


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    played = Played()
    monkeypatch.setattr(lab_module, "start", played.start)
    monkeypatch.setattr(lab_module, "run_load", played.run_load)
    monkeypatch.setattr(lab_module, "metrics_of", lambda endpoint: {})
    monkeypatch.setattr(lab_module, "model_of", lambda endpoint: "model")
    monkeypatch.setattr(lab_module, "why_not_as_asked", lambda *_: None)
    return played


@pytest.fixture
def lab(played: Played, tmp_path: Path) -> Lab:
    blocks: Blocks = make_blocks(list(built_in())[:4], size=2, count=2, mix=((0.0, 1.0),), seed=0)
    return Lab(Embedded(), Serving(target="t"), {ONE.name: blocks}, longest=8, logs=tmp_path)


def test_an_engine_that_does_not_start_is_not_started_for_each_draft_length(
    lab: Lab, played: Played
) -> None:
    played.refused = "outdraft ended with code 1"
    for k in (8, 7, 6):
        found = lab.measure(ONE, Speculation("ngram", k=k), 0)
        assert isinstance(found, Failure)
        assert found.reason == "outdraft ended with code 1"
    assert played.num_starts == 1


def test_an_engine_that_ended_while_others_were_measured_is_started_again(
    lab: Lab, played: Played
) -> None:
    assert isinstance(lab.measure(ONE, OFF, 0), Block)
    played.engines[0].reason = "outdraft was killed (signal 9)"
    assert isinstance(lab.measure(ONE, OFF, 1), Block)
    assert played.num_starts == 2
    assert played.engines[0].is_stopped


def test_one_that_ends_within_its_block_has_failed(
    lab: Lab, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(lab.measure(ONE, OFF, 0), Block)
    working = played.run_load

    def dying(*args: Any, **named: Any) -> Run:
        played.engines[0].reason = "outdraft was killed (signal 9)"
        return working(*args, **named)

    monkeypatch.setattr(lab_module, "run_load", dying)
    found = lab.measure(ONE, OFF, 1)
    assert isinstance(found, Failure)
    assert "signal 9" in found.reason


def test_a_schedule_has_an_engine_of_its_own_and_no_draft_length_in_its_requests(
    lab: Lab, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    working = played.run_load

    def noting(endpoint: Endpoint, *args: Any, **named: Any) -> Run:
        seen.append(endpoint.extra.get("speculation"))
        return working(endpoint, *args, **named)

    monkeypatch.setattr(lab_module, "run_load", noting)
    plain = Speculation("ngram", k=4)
    lab.measure(ONE, plain, 0)
    lab.measure(ONE, replace(plain, schedule=((1, 4, 4), (5, 4096, 0))), 0)
    assert played.num_starts == 2
    assert seen == [None, {"k": 4}, None, None], "a proof and a block of each"
    off_alone = replace(plain, schedule=((1, 4, 0), (5, 4096, 4)))
    lab.measure(ONE, off_alone, 0)
    assert len(seen) == 5, "one request alone proves nothing"


def test_control_c_in_the_first_request_is_no_failure_of_the_arm(lab: Lab, played: Played) -> None:
    played.is_interrupted = True
    with lab, pytest.raises(KeyboardInterrupt):
        lab.measure(ONE, OFF, 0)
    assert [each.is_stopped for each in played.engines] == [True]


PROPOSERS = (OFF, Speculation("ngram", k=8), Speculation("suffix", k=8))


def test_engines_that_are_measured_next_are_started_first(
    lab: Lab, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    working = played.start

    def slowly(*args: Any, **named: Any) -> Engine:
        clock[0] += 10
        return working(*args, **named)

    monkeypatch.setattr(lab_module, "start", slowly)
    lab.prepare(PROPOSERS)
    lab.prepare(PROPOSERS)
    assert played.num_starts == 3
    for number in range(2):
        for arm in PROPOSERS:
            found = lab.measure(ONE, arm, number)
            assert isinstance(found, Block)
            assert (found.duration_s, found.start_s) == ((10, 10) if number == 0 else (0, 0))
    assert played.num_starts == 3


def test_what_went_wrong_ahead_is_told_when_the_arm_is_measured(
    lab: Lab, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_module, "why_not_as_asked", lambda *_: "it did not speculate")
    lab.prepare(PROPOSERS)
    assert all(each.is_stopped for each in played.engines)
    for arm in PROPOSERS:
        found = lab.measure(ONE, arm, 0)
        assert isinstance(found, Failure)
        assert found.reason == "it did not speculate"
    assert played.num_starts == 3


def test_engines_for_which_there_is_no_room_wait(
    lab: Lab, played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lab_module, "resident_bytes", lambda processes: 100)
    monkeypatch.setattr(lab_module, "available_bytes", lambda: 149)
    lab.prepare(PROPOSERS)
    assert played.num_starts == 1, "the first needs nobody's room"
    assert isinstance(lab.measure(ONE, PROPOSERS[1], 0), Block)
    assert [each.is_stopped for each in played.engines] == [True, False]

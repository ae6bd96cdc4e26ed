from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import BackendError
from outdraft.speculation import OFF, Speculation
from outdraft.tune.journal import Block, Journal
from outdraft.tune.starts import StartTimes, time_left


def test_what_earlier_starts_took_is_shown_with_the_next(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for number, start_s in enumerate((90.0, 0.0, 0.02, 100.0)):
            journal.add(Block("concurrency 1", "off", number, 120.0, (), start_s=start_s))
        starts = StartTimes(journal.each_start_s())
        assert journal.starts_s() == pytest.approx(190.02)
    shown: list[Any] = []
    starts.shown(lambda *told: shown.append(told))(
        "off",
        12.0,
        "Loading",
    )
    assert shown == [("off", 12.0, "Loading", 95.0)], "what took no time was no start"


def test_starts_that_succeed_are_remembered() -> None:
    seconds = iter((0.0, 88.0, 100.0, 105.0, 200.0, 312.0, 400.0, 400.1))
    engine: Any = object()

    def start(speculation: Speculation, name: str) -> Any:
        if name == "broken":
            next(seconds)
            raise BackendError("it died")
        return engine

    starts = StartTimes()
    timed = starts.timed(start, lambda: next(seconds))
    assert starts.usual_s is None
    assert timed(OFF, "off") is engine
    assert starts.usual_s == 88.0
    with pytest.raises(BackendError):
        timed(OFF, "broken")
    timed(OFF, "eagle k=3")
    timed(OFF, "up at once")
    assert starts.usual_s == 100.0


@pytest.mark.parametrize(
    ("seconds", "usual_s", "words"),
    [
        (10.0, None, ""),
        (10.0, 95.4, "about 85 s left (earlier starts took 95 s)"),
        (95.0, 95.4, "longer than usual (earlier starts took 95 s)"),
        (300.0, 95.4, "longer than usual (earlier starts took 95 s)"),
    ],
)
def test_the_time_left_in_words(seconds: float, usual_s: float | None, words: str) -> None:
    assert time_left(seconds, usual_s) == words

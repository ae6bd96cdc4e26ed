from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from outdraft.report.tune_live import arms_shown, state_of, tune_live
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import Load
from outdraft.tune.race import Standing
from outdraft.tune.search import RACE, Progress

TWO, THREE, FOUR = (Speculation("ngram", k=k) for k in (2, 3, 4))


def test_every_state_is_shown() -> None:
    standing = Standing(
        predicted={"ngram k=3": 1.2, "ngram k=4": 1.3, "ngram k=5": 1.1},
        finalists=(TWO, THREE, FOUR),
        alive=(THREE, FOUR),
        dropped={"ngram k=2": "far behind"},
        failed={"ngram k=8": "ran out of memory"},
        best=FOUR,
        next_arms=(OFF, THREE, FOUR),
        next_block=4,
    )
    progress = Progress(RACE, Load(concurrency=1), standing, THREE, 10.0, 60.0)
    assert {name: state_of(progress, name) for name in arms_shown(progress)} == {
        "off": "baseline",
        "ngram k=2": "dropped",
        "ngram k=3": "measuring block 5",
        "ngram k=4": "leads",
        "ngram k=8": "failed",
        "ngram k=5": "",
    }


def test_a_start_is_told_now_and_then_where_there_is_no_terminal() -> None:
    output = StringIO()
    with tune_live(Console(file=output, width=200)) as display:
        for seconds in range(70):
            display.starting("eagle k=3", seconds, f"Loading {seconds} %", 95.0)
        for seconds in range(8):
            display.starting("eagle k=3", seconds, "once more", None)
        for seconds in range(3):
            display.starting("off", seconds, "up at once", None)
    assert output.getvalue().splitlines() == [
        "starting eagle k=3: 5 s, about 90 s left (earlier starts took 95 s)  Loading 5 %",
        "starting eagle k=3: 35 s, about 60 s left (earlier starts took 95 s)  Loading 35 %",
        "starting eagle k=3: 65 s, about 30 s left (earlier starts took 95 s)  Loading 65 %",
        "starting eagle k=3: 5 s  once more",
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_terminal_shows_the_start_and_the_line(is_first: bool) -> None:
    """The first engines start before there is anything else to show."""
    output = StringIO()
    console = Console(file=output, width=60, force_terminal=True, color_system=None)
    with tune_live(console) as display:
        if not is_first:
            progress = Progress(RACE, Load(concurrency=1), Standing(), OFF, 10.0, 60.0)
            display.progress(progress)
        display.starting("off", 12.0, "Capturing CUDA graphs: 40 % " + "x" * 99, 88.0)
    shown = output.getvalue()
    assert "starting off: 12 s, about 76 s left (earlier starts took 88" in shown
    assert "Capturing CUDA graphs: 40 % xxx" in shown
    assert ("concurrency 1" in shown) != is_first

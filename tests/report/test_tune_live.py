from __future__ import annotations

import re
from dataclasses import dataclass, replace
from io import StringIO

import pytest
from rich.console import Console

from outdraft.decide.verdict import SHIP, Verdict
from outdraft.report.tune_live import tune_live
from outdraft.report.tune_view import (
    Moment,
    Starting,
    arms_shown,
    search_heading,
    state_of,
    time_line,
    tuning_view,
)
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import FINAL, SCHEDULE, Load, name_of, proposer_name, short_names
from outdraft.tune.journal import Block, Failure, Start
from outdraft.tune.progress import PROFILE, RACE, TEXTS, ArmFigures, Progress
from outdraft.tune.race import Standing
from outdraft.tune.results import BEST, ArmResult, LoadResult

TWO, THREE, FOUR = (Speculation("ngram", k=k) for k in (2, 3, 4))
ONE = Load(concurrency=1)
DRAFTS = {"draft_model": "smollm2-135m-draft", "eagle": "smollm2-135m-eagle"}
ARMS = tuple(
    Speculation(method, k=k, draft=DRAFTS.get(method), quantization=bits)
    for method in ("ngram", "suffix", "draft_model", "eagle")
    for bits in (("none", "int8") if method in DRAFTS else ("none",))
    for k in (2, 5, 8)
)
LONGEST = tuple(arm for arm in ARMS if arm.k == 8)
BEST_ARM = next(
    arm for arm in ARMS if arm.method == "eagle" and arm.k == 5 and arm.quantization != "none"
)
BUSY = "another program is using the cores (0.9 of 2)"


def figures(arm: Speculation, speedup: float, num_blocks: int = 1) -> ArmFigures:
    low, high = (0.9 * speedup, 1.1 * speedup) if num_blocks >= 5 else (None, None)
    ratio = Ratio(speedup, low, high, 0.95, 4 * num_blocks, num_blocks)
    return ArmFigures(proposer_name(arm), 4 * num_blocks, 28.1 * speedup,
                   None if arm.is_off else 0.36, None if arm.is_off else ratio, 7.2)  # fmt: skip


def starts() -> Progress:
    """Engines are starting, nothing was measured."""
    standing = Standing(next_arms=(OFF, *LONGEST))
    up = {name_of(LONGEST[-1]): ArmFigures(proposer_name(LONGEST[-1]), start_s=7.2)}
    return Progress(PROFILE, ONE, standing, None, 7.2, 580.0, ARMS, up)


def race() -> Progress:
    """Every proposer was measured once, some arms race, one failed."""
    known = {name_of(arm): figures(arm, 1 + 0.11 * at) for at, arm in enumerate((OFF, *LONGEST))}
    known[name_of(BEST_ARM)] = figures(BEST_ARM, 1.83, 6)
    standing = Standing(
        predicted={name_of(arm): 1.2 + 0.03 * at for at, arm in enumerate(ARMS)},
        is_profiled=True, finalists=(BEST_ARM, LONGEST[-1]), alive=(BEST_ARM, LONGEST[-1]),
        failed={name_of(LONGEST[2]): "ran out of memory"}, best=BEST_ARM,
        next_arms=(OFF, BEST_ARM), next_block=4,
    )  # fmt: skip
    return Progress(RACE, ONE, standing, BEST_ARM, 130.0, 580.0, ARMS, known)


def finals() -> Progress:
    """Of the second load; the first is done."""
    ratio = Ratio(1.83, 1.69, 1.98, 0.95, 34, 17)
    best = ArmResult(name_of(BEST_ARM), BEST_ARM, BEST, measured=ratio)
    done = LoadResult("concurrency 1", 1, None, (best,), best.name, Verdict(SHIP, (), (), ()))
    load = Load(concurrency=4).in_part(FINAL, name_of(BEST_ARM))
    now = race()
    return replace(now, phase=FINAL, load=load, finished=(done,), elapsed_s=402.0, num_blocks=17,
                   standing=replace(now.standing, next_block=11))  # fmt: skip


STARTING = Moment(starting=Starting("suffix", 12.0, 43.0, "Loading weights: 40 % " + "of it " * 60))
MOMENTS = {
    "starts": (starts(), STARTING),
    "race": (race(), Moment(answered=(3, 4), since_s=2.0)),
    "finals": (finals(), Moment(answered=(1, 2))),
}


def lines(progress: Progress, moment: Moment, width: int, height: int = 40) -> list[str]:
    output = StringIO()
    console = Console(file=output, width=width, height=height, color_system=None)
    console.print(tuning_view(progress, moment, width, height))
    return [line.rstrip() for line in output.getvalue().splitlines()]


@pytest.mark.parametrize("width", [80, 100, 120, 160, 200])
@pytest.mark.parametrize("name", MOMENTS)
def test_no_word_is_broken_at_any_width(name: str, width: int) -> None:
    progress, moment = MOMENTS[name]
    shown = lines(progress, moment, width)
    assert all(len(line) <= width for line in shown)
    names = short_names(ARMS)
    allowed = set(names) | set(names.values())
    table = shown[len(progress.finished) + 2 :]
    arms = arms_shown(progress, moment)
    rows = table[: min(len(arms), 16)]
    for line, arm in zip(rows, arms, strict=False):
        assert line.startswith((f"{arm} ", f"{names[arm]} ")), line
        assert any(line.startswith(f"{each} ") for each in allowed)
        state = state_of(progress, arm, moment)
        assert line.endswith(state), line
        measured = progress.figures.get(arm, ArmFigures("")).measured
        if measured is not None:
            assert f" {measured.estimate:.2f}x" in line
            assert measured.low is None or f"[{measured.low:.2f}, {measured.high:.2f}]" in line
    for line in shown[: -1 if moment.starting else None]:  # a log's line may be longer
        assert "…" not in line.removeprefix("… and ")


@pytest.mark.parametrize(
    ("width", "titles", "is_full"),
    [
        (80, ["speedup over off", "requests"], False),
        (120, ["predicted", "measured over off", "requests", "tokens/s", "acceptance"], False),
        (200, ["predicted", "measured over off", "requests", "tokens/s", "acceptance"], True),
    ],
)
def test_as_much_is_shown_as_there_is_room_for(
    width: int, titles: list[str], is_full: bool
) -> None:
    shown = lines(race(), Moment(), width)
    assert shown[0] == "concurrency 1 · race · block 5"
    assert shown[1].split() == " ".join(titles).split()
    (row,) = (line for line in shown if line.endswith("measuring"))
    assert row.startswith(name_of(BEST_ARM) if is_full else "eagle k=5 int8 ")
    assert "1.83x [1.65, 2.01]" in row


def test_a_low_terminal_says_how_many_arms_are_left_out() -> None:
    shown = lines(race(), Moment(), 100, height=14)
    assert len(shown) <= 14
    assert any(line.startswith("… and ") and line.endswith(" more") for line in shown)


def test_an_arm_that_was_measured_stays() -> None:
    """Also while off's texts are asked for again, and in the final."""
    before = race()
    texts = replace(before, phase=TEXTS, standing=Standing(next_block=1), arm=OFF)
    moment = Moment(standings={"concurrency 1": before.standing})
    for now in (texts, finals()):
        told = arms_shown(now, moment)
        assert set(before.figures) <= set(told)
        shown = lines(now, moment, 200)
        for name, each in before.figures.items():
            (row,) = (line for line in shown if line.startswith(f"{name}  "))
            assert f" {each.num_requests} " in row
    assert state_of(texts, name_of(BEST_ARM), moment) == "leads"
    assert search_heading(texts) == "concurrency 1 · off's texts once more · block 2"


def test_a_start_is_a_start() -> None:
    """The engine of a proposer is shown with the arm that it is started for; off is not measured
    meanwhile, nor is what is up."""
    states = {name: state_of(starts(), name, STARTING) for name in arms_shown(starts(), STARTING)}
    assert states["suffix k=8"] == "starting: 12s, 31s left"
    assert states["off"] == states["ngram k=8"] == "next"
    assert states[name_of(LONGEST[-1])] == "started in 7s"
    late = replace(STARTING, starting=Starting("suffix", 50.0, 43.0))
    assert state_of(starts(), "suffix k=8", late) == "starting: 50s, late"


def test_time_goes_on_while_a_block_is_measured() -> None:
    assert time_line(race(), Moment(since_s=12.0)) == "2m22s of 9m40s · at most 7m18s left"
    assert time_line(race(), Moment(since_s=1e4)) == "9m40s of 9m40s · at most 0s left"


def test_names_are_short_where_that_is_clear() -> None:
    two = (Speculation("eagle", k=2, draft="a"), Speculation("eagle", k=2, draft="b"))
    assert short_names(two) == {
        "off": "off",
        "eagle a k=2": "eagle a k=2",
        "eagle b k=2": "eagle b k=2",
    }
    assert short_names(two[:1])["eagle a k=2"] == "eagle k=2"


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
    measured = {"off": figures(OFF, 1.0)}
    progress = Progress(RACE, ONE, standing, THREE, 10.0, 60.0, (TWO, THREE, FOUR), measured)
    assert {name: state_of(progress, name) for name in arms_shown(progress)} == {
        "off": "baseline",
        "ngram k=2": "dropped",
        "ngram k=3": "measuring",
        "ngram k=4": "leads",
        "ngram k=8": "failed",
        "ngram k=5": "",
    }
    assert state_of(progress, "ngram k=3", Moment(answered=(2, 4))) == "2 of 4 answers"


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_start_is_told_now_and_then_where_there_is_no_terminal() -> None:
    output, clock = StringIO(), Clock()
    with tune_live(Console(file=output, width=200), clock) as display:
        for seconds in range(24):
            clock.now = 20.0 + seconds
            display.starting("eagle k=3", seconds, f"Loading {seconds} %", 95.0)
        clock.now = 60.0
        for seconds in range(3):
            display.starting("off", seconds, "up at once", None)
    assert output.getvalue().splitlines() == [
        "starting eagle k=3: 5 s, about 90 s left (earlier starts took 95 s)  Loading 5 %",
        "starting eagle k=3: 15 s, about 80 s left (earlier starts took 95 s)  Loading 15 %",
    ]


def test_without_a_terminal_there_is_a_line_every_few_seconds() -> None:
    """For what was measured and started; in the middle of a long block too; not for every block of
    a tenth of a second."""
    output, clock = StringIO(), Clock()
    before = race()
    name = name_of(BEST_ARM)
    measured = Block(ONE.name, name, 4, 5.0, ())
    with tune_live(Console(file=output, width=60), clock) as display:
        clock.now = 8.0
        display.progress(replace(before, arm=None, entry=Start(ONE.name, name, 7.6)))
        for tenth in range(30):
            clock.now = 20.0 + tenth / 10
            display.progress(replace(before, arm=None, entry=measured))
        clock.now = 24.0
        display.progress(before)
        for at in range(1, 31):
            clock.now = 24.0 + at
            display.answered(at, 30)
        display.progress(replace(finals(), arm=None))
        failure = Failure(ONE.name, "suffix k=8", "it died", 1.0)
        display.progress(replace(before, arm=None, entry=failure))
    figures_told = f"{name} 51.4 tokens/s, 1.83x [1.65, 2.01] of off"
    assert output.getvalue().splitlines() == [
        f"2m10s of 9m40s: {name} started in 8s",
        f"2m10s of 9m40s: concurrency 1 · race · block 5: {figures_told}",
        f"2m10s of 9m40s: concurrency 1 · race · block 5: {figures_told}",
        f"concurrency 1 · race · block 5: {name}, 8 of 30 answers",
        f"concurrency 1 · race · block 5: {name}, 18 of 30 answers",
        f"concurrency 1 · race · block 5: {name}, 28 of 30 answers",
        f"concurrency 1: {name} 1.83x [1.69, 1.98] SHIP",
        "suffix k=8 failed at concurrency 1: it died",
    ]


@pytest.mark.parametrize("phase", [TEXTS, SCHEDULE])
def test_a_line_has_no_figures_of_another_phase(phase: str) -> None:
    """Off's speed in the race stood beside its texts that were asked for again."""
    output, clock = StringIO(), Clock()
    before = race()
    entry = Block(ONE.name, name_of(OFF), 0, 5.0, ())
    with tune_live(Console(file=output, width=200), clock) as display:
        clock.now = 8.0
        display.progress(replace(before, phase=phase, arm=None, entry=entry))
    assert (
        output.getvalue()
        == f"2m10s of 9m40s: {search_heading(replace(before, phase=phase))}: off\n"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_that_others_use_the_machine_is_said_at_once(terminal: bool) -> None:
    output, clock = StringIO(), Clock()
    console = Console(file=output, width=200, force_terminal=terminal, color_system=None)
    marked = Block(ONE.name, "off", 2, 5.0, (), busy=BUSY)
    with tune_live(console, clock) as display:
        for at in range(40):
            clock.now = float(at)
            display.progress(replace(race(), arm=None, entry=marked))
    then = "off, block 3 was measured then; it is measured again if there is time"
    assert output.getvalue().count(f"{BUSY}: {then}") == 2, "and again after half a minute"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_terminal_shows_the_start_and_the_line(is_first: bool) -> None:
    """The first engines start before there is anything else to show."""
    output = StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None)
    with tune_live(console) as display:
        if not is_first:
            progress = Progress(RACE, ONE, Standing(next_arms=(OFF,)), None, 10.0, 60.0)
            display.progress(progress)
        display.starting("off", 12.0, "Capturing CUDA graphs: 40 % " + "x" * 99, 88.0)
    shown = output.getvalue()
    if is_first:
        assert "starting off: 12 s, about 76 s left (earlier starts took 88 s)" in shown
    else:
        assert "starting: 12s, 1m16s left" in shown
    assert "Capturing CUDA graphs: 40 % " in shown
    assert ("concurrency 1" in shown) != is_first


def test_on_a_terminal_notes_end_at_words() -> None:
    output = StringIO()
    console = Console(file=output, width=40, force_terminal=True, color_system=None)
    words = "note: up to 3 engines are up, one of them awake: it takes 90% of 24 GiB [of all]"
    with tune_live(console) as display:
        display.note(words)
    plain = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]|\r", "", output.getvalue())
    printed = [line.strip() for line in plain.splitlines()]
    assert " ".join(" ".join(printed).split()) == words
    assert all(len(line) <= 40 for line in printed)

"""What commands show on stderr while they work."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Timer
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

from outdraft.distill.settings import OnProgress

_SLOW_S = 2.0
_LINE_S = 15.0  # between lines where there is no terminal
_RUN_LINE_S = 5.0  # likewise, where all of it takes a minute
_LASTING = {"measure": "held-out prompts", "note": "note"}  # lines that stay, and how they begin


def _make_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """A bar with the time left that disappears when it is done."""
    share = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    return Progress(
        *share, *columns, TimeRemainingColumn(), console=console, transient=True,
        disable=not console.is_terminal,
    )  # fmt: skip


@contextmanager
def show_loading() -> Iterator[dict[str, Any]]:
    """A bar for the layers being loaded, then for the steps being timed: as `load_engine` takes
    them."""
    bar = _make_bar(Console(stderr=True))
    task = bar.add_task("", total=None)

    def show(what: str, done: int, total: int) -> None:
        bar.start()  # not before: a download may be drawing a bar of its own
        bar.update(task, description=what, completed=done, total=total)

    try:
        yield {
            "on_layer": partial(show, "loading layers"),
            "on_measured": partial(show, "timing steps and drafts"),
        }
    finally:
        bar.stop()


@contextmanager
def show_runs() -> Iterator[Callable[[int, int], None]]:
    """A bar for the runs of a comparison; lines now and then without a terminal."""
    console = Console(stderr=True)
    bar = _make_bar(console)
    task = bar.add_task("comparing with off", total=None)
    shown_at = time.monotonic()

    def on_run(done: int, total: int) -> None:
        nonlocal shown_at
        bar.update(task, completed=done, total=total)
        if not console.is_terminal and time.monotonic() - shown_at >= _RUN_LINE_S:
            shown_at = time.monotonic()
            print(f"comparing with off: {done} of {total} runs", file=sys.stderr, flush=True)

    with bar:
        yield on_run


@contextmanager
def show_steps(total: int) -> Iterator[Callable[[str], None]]:
    """A bar for so many steps; call it with what the next one does."""
    bar = _make_bar(Console(stderr=True))
    task = bar.add_task("", total=total)
    done = -1

    def on_step(words: str) -> None:
        nonlocal done
        done += 1
        bar.update(task, description=words, completed=done)

    with bar:
        yield on_step


@contextmanager
def show_stages(*, quiet: bool) -> Iterator[OnProgress]:
    """A bar for each stage of a distillation; lines now and then without a terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield _stage_lines()
        return
    bar = _make_bar(console, TextColumn("{task.fields[words]}"))
    stages = {}

    def on_progress(stage: str, share: float, words: str) -> None:
        if stage in _LASTING:
            bar.console.print(f"{_LASTING[stage]}: {words}", markup=False)
            return
        if stage not in stages:
            stages[stage] = bar.add_task(stage, total=1.0, words="")
        bar.update(stages[stage], completed=share, words=words)

    with bar:
        yield on_progress


def _stage_lines() -> OnProgress:
    started: dict[str, float] = {}
    ended: set[str] = set()
    shown_at = 0.0

    def on_progress(stage: str, share: float, words: str) -> None:
        nonlocal shown_at
        if stage in _LASTING:
            print(f"{_LASTING[stage]}: {words}", file=sys.stderr, flush=True)
            return
        now = time.monotonic()
        if stage not in started:
            started[stage], shown_at = now, 0.0
        if now - shown_at < _LINE_S and (share < 1 or stage in ended):
            return
        shown_at = now
        if share >= 1:
            ended.add(stage)
        left, elapsed_s = "", now - started[stage]
        if 0.01 < share < 1 and elapsed_s:  # at its end nobody knows: it may stand there
            left = f", {elapsed_s * (1 - share) / share:.0f} s left"
        print(f"{stage} {share:.0%}{left}: {words}", file=sys.stderr, flush=True)

    return on_progress


@contextmanager
def say_if_slow(message: str) -> Iterator[None]:
    """Prints the message if the work inside takes longer than two seconds."""
    timer = Timer(_SLOW_S, lambda: print(f"outdraft: {message}", file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()

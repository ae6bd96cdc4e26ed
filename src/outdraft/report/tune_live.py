"""The display of a tuning run: the arms of the current load, and the time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from outdraft.report.tables import ratio_text
from outdraft.tune.arm import name_of
from outdraft.tune.search import Progress
from outdraft.tune.starts import time_left

_MOST_ROWS = 12
# Seconds before the first line on an engine that is starting, and between two of them, where there
# is no terminal
_FIRST_S, _EACH_S = 5.0, 30.0


class TuningDisplay:
    """On a terminal a table that changes; elsewhere a line for each block."""

    def __init__(self, console: Console, screen: Live | None) -> None:
        self._console = console
        self._screen = screen  # None: no terminal
        self._last: Progress | None = None
        self._last_line = ""
        self._told_start = ("", 0.0)  # arm and seconds of the last line on a start

    def progress(self, progress: Progress) -> None:
        self._last = progress
        line = f"{progress.load.name}, block {progress.standing.next_block + 1}"
        if self._screen is not None:
            self._screen.update(_table(progress))
        elif progress.arm is not None and line != self._last_line:
            self._last_line = line
            self.note(f"{line} ({_spent(progress)})")

    def starting(self, arm: str, seconds: float, line: str, usual_s: float | None) -> None:
        """Shows an engine that is starting: since when, for how long, its log's newest `line`."""
        left = time_left(seconds, usual_s)
        words = f"starting {arm}: {seconds:.0f} s{f', {left}' if left else ''}"
        if self._screen is None:
            self._tell_start(arm, seconds, f"{words}  {line}")
            return
        shown = "\n".join(each[: self._console.width - 1] for each in (words, line))
        # The first engines start before there is anything to show of the arms.
        self._screen.update(_dim(shown) if self._last is None else _table(self._last, shown))

    def _tell_start(self, arm: str, seconds: float, words: str) -> None:
        """A line now and then, and none for an engine that is up at once."""
        last_arm, last_s = self._told_start
        is_same = arm == last_arm and seconds >= last_s
        if seconds >= (last_s + _EACH_S if is_same else _FIRST_S):
            self._told_start = arm, seconds
            self.note(words.rstrip())

    def note(self, words: str) -> None:
        self._console.print(words, highlight=False, soft_wrap=True)


@contextmanager
def tune_live(console: Console) -> Iterator[TuningDisplay]:
    if not console.is_terminal:
        yield TuningDisplay(console, None)
        return
    with Live(console=console, transient=True, refresh_per_second=4) as screen:
        yield TuningDisplay(console, screen)


def _spent(progress: Progress) -> str:
    return f"{progress.elapsed_s:.0f} s of {progress.budget_s:.0f} s"


def _table(progress: Progress, words: str = "") -> Group:
    standing = progress.standing
    table = Table(box=None, padding=(0, 2, 0, 0), title=progress.load.name, title_justify="left")
    for at, name in enumerate(("", "predicted", "measured over off", "state")):
        table.add_column(name, justify="left" if at in (0, 3) else "right", no_wrap=True)
    for name in arms_shown(progress):
        predicted = standing.predicted.get(name)
        measured = standing.measured.get(name)
        is_running = progress.arm is not None and name == name_of(progress.arm)
        table.add_row(
            Text(name),
            "" if predicted is None else f"{predicted:.2f}x",
            "" if measured is None else ratio_text(measured),
            Text(state_of(progress, name), style="bold" if is_running else ""),
        )
    left = max(progress.budget_s - progress.elapsed_s, 0)
    spent = f"{_spent(progress)}, at most {left:.0f} s left"
    return Group(table, _dim(spent), _dim(words))


def _dim(words: str) -> Text:
    return Text(words, style="dim")


def arms_shown(progress: Progress) -> list[str]:
    """Arms that raced, that are measured now, that failed; then the best predictions."""
    standing = progress.standing
    raced = [name_of(arm) for arm in (*standing.finalists, *standing.next_arms)]
    predicted = sorted(standing.predicted, key=lambda name: -standing.predicted[name])
    return list(dict.fromkeys(("off", *raced, *standing.failed, *predicted)))[:_MOST_ROWS]


def state_of(progress: Progress, name: str) -> str:
    standing = progress.standing
    if progress.arm is not None and name == name_of(progress.arm):
        return f"measuring block {standing.next_block + 1}"
    if name in standing.failed:
        return "failed"
    if name in standing.dropped:
        return "dropped"
    if standing.best is not None and name == name_of(standing.best):
        return "leads"
    if name in {name_of(arm) for arm in standing.alive}:
        return "in the race"
    return "baseline" if name == "off" else ""

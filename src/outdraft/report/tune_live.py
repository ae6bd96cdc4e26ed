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

_MOST_ROWS = 12


class TuningDisplay:
    """On a terminal a table that changes; elsewhere a line for each block."""

    def __init__(self, console: Console, screen: Live | None) -> None:
        self._console = console
        self._screen = screen  # None: no terminal
        self._last: Progress | None = None
        self._last_line = ""

    def progress(self, progress: Progress) -> None:
        self._last = progress
        line = f"{progress.load.name}, block {progress.standing.next_block + 1}"
        if self._screen is not None:
            self._screen.update(_table(progress))
        elif progress.arm is not None and line != self._last_line:
            self._last_line = line
            self.note(f"{line} ({_spent(progress)})")

    def starting(self, arm: str, seconds: float, line: str) -> None:
        """Shows the newest `line` of the log of an engine that is starting."""
        if self._screen is not None and self._last is not None:
            words = f"starting {arm}: {seconds:.0f} s  {line}"
            self._screen.update(_table(self._last, words[: self._console.width - 1]))

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
    return Group(table, Text(spent, style="dim"), Text(words, style="dim"))


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

"""What a tuning run shows while it runs: the arms of the load at hand, and the time left."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from outdraft.report.tune_table import ratio_text
from outdraft.tune.arm import name_of
from outdraft.tune.session import Told

_ROWS = 12


class Show:
    """On a terminal a table that changes; elsewhere a line for each block."""

    def __init__(self, console: Any, screen: Any | None) -> None:
        self._console = console
        self._screen = screen  # a rich Live; None: no terminal
        self._last: Told | None = None
        self._said = ""

    def told(self, told: Told) -> None:
        self._last = told
        if self._screen is not None:
            self._screen.update(_table(told, ""))
        elif told.arm is not None:
            self._say(f"{told.load.name}, block {told.standing.next_block + 1}", told)

    def starting(self, arm: str, seconds: float, line: str) -> None:
        if self._screen is not None and self._last is not None:
            words = f"starting {arm}: {seconds:.0f} s  {line}"
            self._screen.update(_table(self._last, words[: self._console.width - 1]))

    def note(self, words: str) -> None:
        self._console.print(words, highlight=False, soft_wrap=True)

    def _say(self, words: str, told: Told) -> None:
        if words != self._said:
            self._said = words
            spent = f"{told.elapsed_s:.0f} s of {told.budget_s:.0f} s"
            self._console.print(f"{words} ({spent})", highlight=False, soft_wrap=True)


@contextmanager
def tune_live(console: Any) -> Iterator[Show]:
    if not console.is_terminal:
        yield Show(console, None)
        return
    from rich.live import Live

    with Live(console=console, transient=True, refresh_per_second=4) as screen:
        yield Show(console, screen)


def _table(told: Told, words: str) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    standing = told.standing
    now = None if told.arm is None else name_of(told.arm)
    table = Table(box=None, padding=(0, 2, 0, 0), title=told.load.name, title_justify="left")
    for at, name in enumerate(("", "predicted", "measured over off", "state")):
        table.add_column(name, justify="left" if at in (0, 3) else "right", no_wrap=True)
    for name in rows_of(told):
        predicted = standing.predicted.get(name)
        measured = standing.measured.get(name)
        table.add_row(
            Text(name),
            "" if predicted is None else f"{predicted:.2f}x",
            "" if measured is None else ratio_text(measured),
            Text(state_of(told, name), style="bold" if name == now else ""),
        )
    left = max(told.budget_s - told.elapsed_s, 0)
    spent = f"{told.elapsed_s:.0f} s of {told.budget_s:.0f} s, at most {left:.0f} s left"
    return Group(table, Text(spent, style="dim"), Text(words, style="dim"))


def rows_of(told: Told) -> list[str]:
    """What raced, what is measured now, what failed, then what was predicted best."""
    standing = told.standing
    names = ["off", *(name_of(arm) for arm in standing.finalists)]
    names += [name_of(arm) for arm in standing.next_arms]
    names += standing.failed
    names += sorted(standing.predicted, key=lambda name: -standing.predicted[name])
    return list(dict.fromkeys(names))[:_ROWS]


def state_of(told: Told, name: str) -> str:
    standing = told.standing
    if told.arm is not None and name == name_of(told.arm):
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

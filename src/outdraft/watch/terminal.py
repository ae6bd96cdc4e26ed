"""The watch in a terminal: a view that changes; piped, a line now and then and one for all that
happens."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console
from rich.live import Live
from rich.text import Text

from outdraft.report.numbers import UNKNOWN, milliseconds, percent, rate, share
from outdraft.watch.findings import Action, Alarm, Notice
from outdraft.watch.snapshot import ReplicaState, ReplicaView, Snapshot, WindowFigures
from outdraft.watch.words import (
    TIMES,
    advice_texts,
    advice_words,
    ago,
    alarm_title,
    benefit_words,
    clock,
    count_words,
    is_calm,
    lost_words,
    name_of_view,
    one_line,
)

_LINE_S = 5.0  # between two lines, where there is no terminal
_GAP = 2  # spaces between columns
_SHORT_ADVICE, _LONG_ADVICE = 14, 34  # columns for it, below and from this width of a terminal on
_WIDE = 120
_MOST_NOTICES = 3
_FEWEST_ROWS = 4  # of replicas, however low the window is
_HIGH = 30  # lines of a terminal, from which on there is room for more figures

_SHELL_WORD = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")

View = Callable[[Snapshot], None]


class Column(NamedTuple):
    title: str
    cell: Callable[[ReplicaView], str]
    is_left: bool = False


def _figure(view: ReplicaView, name: str) -> float | None:
    return None if view.window is None else getattr(view.window, name)


def _latency(view: ReplicaView) -> str:
    """Of an engine without histograms, its mean."""
    tpot = None if view.window is None else view.window.times.get("tpot")
    if tpot is not None:
        return _milliseconds(tpot.p50, tpot.p99)
    mean = _figure(view, "seconds_per_token")
    return UNKNOWN if mean is None else f"mean {_milliseconds(mean)}"


def _milliseconds(*seconds: float | None) -> str:
    return " / ".join(UNKNOWN if each is None else milliseconds(1000 * each) for each in seconds)


def _source(view: ReplicaView) -> str:
    return "" if view.benefit is None else view.benefit.source.words


# The name and what is advised are always there; of these, as many as fit, in this order.
_COLUMNS = (
    Column("benefit", lambda view: "" if view.benefit is None else benefit_words(view.benefit)),
    Column("acceptance", lambda view: share(_figure(view, "acceptance_rate"))),
    Column("per round", lambda view: share(_figure(view, "tokens_per_round"))),
    Column("from", _source, is_left=True),
    Column("tokens/s", lambda view: rate(_figure(view, "tokens_per_s"))),
    Column("TPOT ms P50 / P99", _latency),
    Column("running", lambda view: rate(_figure(view, "running"))),
    Column("KV cache", lambda view: percent(_figure(view, "kv_usage"))),
)
_NAME = Column("", lambda view: name_of_view(view).removeprefix("http://"), is_left=True)
_ADVICE = Column("advice", advice_words, is_left=True)


@contextmanager
def watch_view(console: Console) -> Iterator[View]:
    """Yields what to call with each snapshot."""
    if not console.is_terminal:
        yield _Lines(console).show
        return
    with Live(console=console, screen=False, auto_refresh=False, transient=False) as screen:

        def show(snapshot: Snapshot) -> None:
            screen.update(snapshot_text(snapshot, console.width, console.height), refresh=True)

        yield show


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._told_at = float("-inf")
        self._last_notice = float("-inf")

    def show(self, snapshot: Snapshot) -> None:
        for notice in snapshot.notices:
            if notice.at > self._last_notice:
                self._say(notice_line(notice))
        self._last_notice = max([self._last_notice, *(each.at for each in snapshot.notices)])
        if snapshot.at - self._told_at >= _LINE_S:
            self._told_at = snapshot.at
            self._say(snapshot_line(snapshot))

    def _say(self, words: str) -> None:
        self._console.print(Text(words), soft_wrap=True)


def notice_line(notice: Notice) -> str:
    who = one_line(notice.replica) or "all"
    return f"{clock(notice.at)} {notice.kind} · {who}: {one_line(notice.text)}"


def snapshot_line(snapshot: Snapshot) -> str:
    """E.g. `14:02:11 3 replicas · acceptance 0.43 · benefit 1.21x [1.12, 1.31] by plain replicas ·
    KEEP`."""
    fleet = snapshot.fleet
    words = [f"{clock(snapshot.at)} {count_words(snapshot)}"]
    if (accepted := _figure(fleet, "acceptance_rate")) is not None:
        words.append(f"acceptance {share(accepted)}")
    if (per_round := _figure(fleet, "tokens_per_round")) is not None:
        words.append(f"{share(per_round)} tokens/round")
    words.append(f"benefit {benefit_words(fleet.benefit)} {_source(fleet)}".rstrip())
    words.append(advice_words(fleet))
    if num_alarms := len(snapshot.alarms):
        words.append(f"{num_alarms} alarm{'s' if num_alarms > 1 else ''}")
    return " · ".join(words)


def snapshot_text(snapshot: Snapshot, width: int, height: int = 40) -> Text:
    """The whole view, no line wider than `width` and no word broken that is not longer."""
    text = Text(no_wrap=True, overflow="crop")
    top = f"outdraft watch · {count_words(snapshot)} · last {ago(snapshot.window_s)} · "
    text.append(f"{top}{clock(snapshot.at)}"[:width] + "\n", style="dim")
    _add_advice(text, snapshot, width)
    text.append("\n")
    below = Text(no_wrap=True, overflow="crop")
    if height >= _HIGH and snapshot.fleet.window is not None:
        for words in figure_lines(snapshot.fleet.window):
            _add_lines(below, words, width, "dim")
        below.append("\n")
    for alarm in snapshot.alarms:
        _add_alarm(below, alarm, snapshot.at, width)
    for notice in snapshot.notices[-_MOST_NOTICES:]:
        below.append(_at_a_word(notice_line(notice), width - 1) + "\n", style="dim")
    around = 4  # the head, all replicas together, how many more there are, an empty line
    taken = str(text).count("\n") + str(below).count("\n") + around
    _add_table(text, snapshot, width, max(height - taken, _FEWEST_ROWS))
    text.append_text(below)
    text.rstrip()
    return text


def _add_advice(text: Text, snapshot: Snapshot, width: int) -> None:
    advice = snapshot.fleet.advice
    if advice is None:
        text.append(f"{advice_words(snapshot.fleet)}\n", style="bold")
        if snapshot.fleet.window is not None:
            _add_lines(text, advice_texts(snapshot.fleet)["next"].replace("`", ""), width, "dim")
        return
    style = "bold green" if advice.action is Action.KEEP else "bold yellow"
    since = f"for {ago(snapshot.at - advice.since)}"
    _add_lines(text, f"{one_line(advice.words)} ({since})", width, style)
    _add_lines(text, one_line(advice.reason), width, "")
    if lost := lost_words(advice):
        _add_lines(text, lost, width, "")
    if advice.benefit is not None:
        benefit = advice.benefit
        words = f"{benefit_words(benefit)} {benefit.source.words}; assumed: "
        _add_lines(text, f"{words}{one_line(benefit.assumes)}", width, "dim")


def figure_lines(window: WindowFigures) -> Iterator[str]:
    """What the table has no columns for, of all replicas together."""
    times = [
        f"{name} {_milliseconds(each.p50, each.p90, each.p99)}"
        for kind, name in TIMES.items()
        if (each := window.times.get(kind)) is not None
    ]
    if times:
        yield f"ms P50 / P90 / P99: {' · '.join(times)}"
    accepted = []
    if window.acceptance_by_position:
        accepted.append(f"by position {' '.join(map(share, window.acceptance_by_position))}")
    if window.bands:
        medians = [f"{share(each.p50)} at {band}" for band, each in window.bands.items()]
        accepted.append(f"median by temperature {', '.join(medians)}")
    if accepted:
        yield f"accepted: {' · '.join(accepted)}"
    preempted = UNKNOWN if window.preemptions is None else f"{window.preemptions:,.0f}"
    yield (
        f"requests/s {rate(window.requests_per_s)} · waiting {rate(window.waiting)} · "
        f"preempted {preempted} · prefix hits {percent(window.prefix_hit_rate)}"
    )


def _add_alarm(text: Text, alarm: Alarm, now: float, width: int) -> None:
    who = one_line(alarm.replica) or "all"
    start = f"ALARM {alarm_title(alarm.kind)} · {who} · for {ago(now - alarm.since)}"
    _add_lines(text, start, width, "bold red")
    _add_lines(text, f"  {one_line(alarm.evidence)}", width, "")
    _add_lines(text, f"  next: {one_line(alarm.advice)}", width, "")
    text.append(f"  $ {copyable_command(one_line(alarm.command), width - 8)}\n\n", style="cyan")


def copyable_command(command: str, width: int) -> str:
    """Lines that a shell reads as the one command, when they are copied."""
    lines = [""]
    for word in _SHELL_WORD.findall(command):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return " \\\n      ".join(lines)


def _add_lines(text: Text, words: str, width: int, style: str) -> None:
    indent = " " * (len(words) - len(words.lstrip()))
    lines = textwrap.wrap(
        words, width - 1, subsequent_indent=indent, break_on_hyphens=False
    )  # fmt: skip
    text.append("".join(f"{line}\n" for line in lines), style=style)


def _add_table(text: Text, snapshot: Snapshot, width: int, num_rows: int) -> None:
    """All replicas together first, then those that need somebody, then the calm ones."""
    known = [view for view in snapshot.replicas if view.state is not ReplicaState.GONE]
    shown = sorted(known, key=is_calm)[:num_rows]
    views = [snapshot.fleet, *shown] if len(known) != 1 else shown
    columns = fitting_columns(views, width)
    rows = [[column.title for column in columns]]
    rows += [[column.cell(view) for column in columns] for view in views]
    for row in rows:
        row[-1] = _at_a_word(row[-1], _advice_width(width))
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    widths[0] = min(widths[0], max(width - sum(widths[1:]) - _GAP * (len(widths) - 1), 8))
    for number, row in enumerate(rows):
        cells = [
            _without_middle(cell, size).ljust(size) if column.is_left else cell.rjust(size)
            for cell, size, column in zip(row, widths, columns, strict=True)
        ]
        text.append((" " * _GAP).join(cells).rstrip() + "\n", style=_row_style(number, views))
    if left := len(known) - len(shown):
        text.append(f"… and {left} more\n", style="dim")
    text.append("\n")


def _row_style(number: int, views: Sequence[ReplicaView]) -> str:
    if number == 0:
        return "dim"
    view = views[number - 1]
    return "red" if view.state is ReplicaState.DOWN else "" if is_calm(view) else "yellow"


def fitting_columns(views: Sequence[ReplicaView], width: int) -> list[Column]:
    """As many as fit beside a name that can still be told from others."""
    longest = max(len(_NAME.cell(view)) for view in views)
    kept: list[Column] = []
    left = width - min(longest, width // 4) - _GAP
    left -= min(_column_width(_ADVICE, views), _advice_width(width))
    for column in _COLUMNS:
        left -= _GAP + _column_width(column, views)
        if left < 0:
            break
        kept.append(column)
    return [_NAME, *kept, _ADVICE]


def _column_width(column: Column, views: Sequence[ReplicaView]) -> int:
    return max(len(column.title), *(len(column.cell(view)) for view in views))


def _advice_width(width: int) -> int:
    return _LONG_ADVICE if width >= _WIDE else _SHORT_ADVICE


def _without_middle(words: str, width: int) -> str:
    """Where it is too long: addresses differ at their ends."""
    if len(words) <= width:
        return words
    end = (width - 1) // 2
    return f"{words[: width - 1 - end]}…{words[len(words) - end :]}"


def _at_a_word(words: str, width: int) -> str:
    return textwrap.shorten(words, width, placeholder=" …") if len(words) > width else words

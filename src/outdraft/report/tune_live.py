"""The display of a tuning run: a table that fills, or lines where there is no terminal."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from outdraft.durations import format_duration
from outdraft.report.tune_view import (
    Moment,
    Starting,
    finished_line,
    search_heading,
    time_line,
    tuning_view,
)
from outdraft.tune.arm import SCHEDULE, name_of
from outdraft.tune.journal import Block, Failure, Start
from outdraft.tune.progress import TEXTS, Progress
from outdraft.tune.starts import time_left
from outdraft.tune.wording import speedup_text

_PER_S = 2  # looks at the table; each takes time from the client that measures
# Without a terminal, seconds: between two lines at least, until one that nothing happened, before
# the first on an engine that is starting
_SHORTEST_S, _LONGEST_S, _FIRST_S = 2.0, 10.0, 5.0
_WARN_S = 30.0  # between two warnings that others use the machine


class TuningDisplay:
    """On a terminal a table; elsewhere a line every few seconds."""

    def __init__(
        self, console: Console, screen: Live | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._screen = screen  # None: no terminal
        self._clock = clock
        self._last: Progress | None = None
        self._told_at = 0.0  # when the last progress was
        self._moment = Moment()
        self._said_at = clock()  # when the last line was printed
        self._num_finished = 0
        self._warned_at: float | None = None  # that others use the machine

    def progress(self, progress: Progress) -> None:
        self._last, self._told_at = progress, self._clock()
        standings = self._moment.standings
        if progress.standing.predicted or progress.standing.finalists:
            load = progress.load.in_part("").name
            standings = {**standings, load: progress.standing}
        self._moment = Moment(standings=standings)
        if isinstance(progress.entry, Failure):
            failure = progress.entry
            self.note(f"{failure.arm} failed at {failure.load}: {failure.reason}")
        elif self._screen is None:
            self._tell(progress)
        if isinstance(progress.entry, Block) and progress.entry.busy:
            self._warn(progress.entry)

    def starting(self, arm: str, seconds: float, line: str, usual_s: float | None) -> None:
        """Shows an engine that is starting: since when, for how long, its log's newest `line`."""
        starting = Starting(arm, seconds, usual_s, line)
        self._moment = replace(self._moment, starting=starting)
        if self._screen is None and seconds >= _FIRST_S and self._is_silent():
            left = time_left(seconds, usual_s)
            words = f"starting {arm}: {seconds:.0f} s{f', {left}' if left else ''}"
            self.note(f"{words}  {line}".rstrip())

    def answered(self, done: int, total: int) -> None:
        """Called in the middle of a block: it must be quick."""
        self._moment = replace(self._moment, answered=(done, total), starting=None)
        last = self._last
        is_measured = last is not None and last.arm is not None
        if self._screen is None and is_measured and self._is_silent():
            assert last is not None
            assert last.arm is not None
            self.note(f"{search_heading(last)}: {name_of(last.arm)}, {done} of {total} answers")

    def note(self, words: str) -> None:
        """A line that stays. On a terminal it ends at words; elsewhere it is one line."""
        self._said_at = self._clock()
        is_wrapped = self._screen is not None
        self._console.print(words, highlight=False, markup=False, soft_wrap=not is_wrapped)

    def _warn(self, block: Block) -> None:
        """At once, and now and then while it goes on."""
        if self._warned_at is not None and self._clock() - self._warned_at < _WARN_S:
            return
        self._warned_at = self._clock()
        then = "it counts as it is" if block.is_again else "it is measured again if there is time"
        self.note(f"{block.busy}: {block.arm}, block {block.block + 1} was measured then; {then}")

    def _is_silent(self) -> bool:
        return self._clock() - self._said_at >= _LONGEST_S

    def _tell(self, progress: Progress) -> None:
        for load in progress.finished[self._num_finished :]:
            self.note(finished_line(load))
        self._num_finished = len(progress.finished)
        entry = progress.entry
        if entry is None or self._clock() - self._said_at < _SHORTEST_S:
            return
        spent = time_line(progress, Moment()).partition(" · ")[0]
        if isinstance(entry, Start):
            self.note(f"{spent}: {entry.arm} started in {format_duration(entry.duration_s)}")
        elif isinstance(entry, Block):
            self.note(
                f"{spent}: {search_heading(progress)}: {entry.arm}{_figures(progress, entry.arm)}"
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What the terminal shows now."""
        if self._last is not None:
            since_s = self._clock() - self._told_at
            moment = replace(self._moment, since_s=since_s)
            yield tuning_view(self._last, moment, options.max_width, console.height)
        elif (starting := self._moment.starting) is not None:
            # The first engines start before there is anything to show of the arms.
            left = time_left(starting.seconds, starting.usual_s)
            yield f"starting {starting.name}: {starting.seconds:.0f} s{f', {left}' if left else ''}"
            yield starting.line


def _figures(progress: Progress, name: str) -> str:
    """Of the phase: there are none of texts that are asked for again, nor of the schedule."""
    figures = progress.figures.get(name)
    if figures is None or figures.tokens_per_s is None or progress.phase in (TEXTS, SCHEDULE):
        return ""
    words = f" {figures.tokens_per_s:.1f} tokens/s"
    return (
        words if figures.measured is None else f"{words}, {speedup_text(figures.measured)} of off"
    )


@contextmanager
def tune_live(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[TuningDisplay]:
    if not console.is_terminal:
        yield TuningDisplay(console, None, clock)
        return
    screen = Live(console=console, transient=True, refresh_per_second=_PER_S)
    display = TuningDisplay(console, screen, clock)
    screen.update(display)
    with screen:
        yield display

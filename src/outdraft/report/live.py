"""The display of `bench` and `compare` while they run: a progress bar and figures so far."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from outdraft.acceptance import Acceptance
from outdraft.loadgen.load import Sink
from outdraft.records import Record
from outdraft.report.numbers import acceptance_cell

_NUM_KEPT = 500  # newest requests, over which medians are taken


@dataclass(slots=True)
class Figures:
    """Of one arm, from the requests so far."""

    num_done: int = 0
    num_failed: int = 0
    ttft_ns: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_KEPT))
    tpot_ns: deque[float] = field(default_factory=lambda: deque(maxlen=_NUM_KEPT))
    acceptance: Acceptance = field(default_factory=Acceptance)
    num_tokens: int = 0  # of the texts that it was reported of
    num_texts: int = 0

    def add(self, record: Record) -> None:
        self.num_done += 1
        self.num_failed += not record.ok
        if not record.ok or record.is_warmup:
            return
        for times_ns, ns in ((self.ttft_ns, record.ttft_ns), (self.tpot_ns, record.tpot_ns)):
            if ns is not None:
                times_ns.append(ns)
        if record.acceptance is not None:
            self.acceptance.add(record.acceptance)
            self.num_tokens += record.completion_tokens or 0
            self.num_texts += 1

    def cells(self) -> tuple[str, ...]:
        medians = [
            f"{median(times_ns) / 1e6:.1f}" if times_ns else "-"
            for times_ns in (self.ttft_ns, self.tpot_ns)
        ]
        rate, drafted = self.acceptance.rate, None
        if rate is not None:
            drafted = self.acceptance.share_drafted(self.num_tokens, self.num_texts)
        shown = "-" if rate is None else acceptance_cell(rate, drafted)
        return str(self.num_done), str(self.num_failed), *medians, shown


@contextmanager
def live(total: int | None, title: str, console: Console) -> Iterator[Sink]:
    """Yields a function to call with each record; without a terminal, nothing is shown. `total`:
    records without leads, whose index is negative; None where that is not known yet."""
    if not console.is_terminal:
        yield lambda record: None
        return
    arms: dict[str, Figures] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    bar = Progress(*columns, TimeRemainingColumn(), console=console)
    task = bar.add_task(title, total=total)

    def view() -> Group:
        table = Table("", box=None, padding=(0, 2, 0, 0))
        for name in ("requests", "failed", "TTFT ms P50", "TPOT ms P50", "acceptance"):
            table.add_column(name, justify="right")
        for name, figures in arms.items():
            table.add_row(name, *figures.cells())
        return Group(table, bar)

    with Live(view(), console=console, transient=True, refresh_per_second=4) as screen:

        def show(record: Record) -> None:
            arms.setdefault(record.arm, Figures()).add(record)
            bar.advance(task, record.index >= 0)
            screen.update(view())

        yield show

"""What a measurement shows while it runs: a bar with the time left, and figures so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from outdraft.loadgen.load import Sink
from outdraft.records import Record
from outdraft.stats import percentile

_KEPT = 500  # of the newest requests: figures follow what happens now


@dataclass(slots=True)
class Figures:
    """Of one arm, from the requests so far."""

    num_done: int = 0
    num_failed: int = 0
    ttft_ms: list[float] = field(default_factory=list)
    tpot_ms: list[float] = field(default_factory=list)
    num_drafted: int = 0
    num_accepted: int = 0

    def add(self, record: Record) -> None:
        self.num_done += 1
        self.num_failed += not record.ok
        if not record.ok or record.is_warmup:
            return
        if record.ttft_ns is not None:
            self.ttft_ms = [*self.ttft_ms[1 - _KEPT :], record.ttft_ns / 1e6]
        if record.tpot_ns is not None:
            self.tpot_ms = [*self.tpot_ms[1 - _KEPT :], record.tpot_ns / 1e6]
        if record.acceptance is not None:
            self.num_drafted += record.acceptance.num_draft_tokens
            self.num_accepted += record.acceptance.num_accepted_tokens

    def cells(self) -> tuple[str, ...]:
        return (
            str(self.num_done),
            str(self.num_failed),
            _middle(self.ttft_ms),
            _middle(self.tpot_ms),
            f"{self.num_accepted / self.num_drafted:.2f}" if self.num_drafted else "-",
        )


def _middle(values: list[float]) -> str:
    return f"{percentile(values, 0.5):.1f}" if values else "-"


@contextmanager
def live(total: int, title: str, console: Any) -> Iterator[Sink]:
    """Told of each record; shows nothing where the console is no terminal."""
    if not console.is_terminal:
        yield lambda record: None
        return
    from rich.console import Group
    from rich.live import Live
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.table import Table

    arms: dict[str, Figures] = {}
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeLeft(),
        console=console,
    )  # fmt: skip
    task = bar.add_task(title, total=total)

    def shown() -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0))
        for at, name in enumerate(
            ("", "requests", "failed", "TTFT ms P50", "TPOT ms P50", "acceptance")
        ):
            table.add_column(name, justify="left" if at == 0 else "right")
        for name, figures in arms.items():
            table.add_row(name, *figures.cells())
        return Group(table, bar)

    with Live(shown(), console=console, transient=True, refresh_per_second=4) as screen:

        def tell(record: Record) -> None:
            arms.setdefault(record.arm, Figures()).add(record)
            bar.advance(task)
            screen.update(shown())

        yield tell

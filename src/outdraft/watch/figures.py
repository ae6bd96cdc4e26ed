"""The page's tables of figures: times, acceptance by position and by temperature, load. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from outdraft.report.layout import figure, nothing, panels, table
from outdraft.report.markup import Child, Markup, join
from outdraft.report.numbers import UNKNOWN, milliseconds, percent, rate, share
from outdraft.watch.snapshot import Quantiles, ReplicaView, Snapshot, WindowFigures
from outdraft.watch.words import TIMES, is_calm, name_of_view

_MOST_ROWS = 8  # replicas beside all of them together
_MOST_POSITIONS = 12
_SHORT_NAME = 24  # letters of a name that is not broken, however narrow the screen


class _Row(NamedTuple):
    name: str
    window: WindowFigures


def figure_tables(snapshot: Snapshot) -> Markup:
    rows = list(_rows(snapshot))
    if not rows:
        return nothing("Figures begin with the second look.")
    narrow = list(_acceptance(rows))
    return join([
        panels(_times(rows), _load(rows), style="--panel:100%"),
        panels(*narrow, style="--panel:420px") if narrow else None,
    ])  # fmt: skip


def _named(rows: Sequence[_Row]) -> dict[int, str]:
    """The kind of the first column."""
    return {0: "name short"} if all(len(row.name) <= _SHORT_NAME for row in rows) else {}


def _rows(snapshot: Snapshot) -> Iterator[_Row]:
    """All together where there are several, then those that need somebody first."""
    views: Sequence[ReplicaView] = sorted(snapshot.replicas, key=is_calm)[:_MOST_ROWS]
    for view in (snapshot.fleet, *views) if len(snapshot.replicas) != 1 else views:
        if view.window is not None:
            yield _Row(name_of_view(view).removeprefix("http://"), view.window)


def _times(rows: Sequence[_Row]) -> Markup:
    head = ["replica", *(f"{name} P{q}" for name in TIMES.values() for q in (50, 90, 99))]
    body = [
        (row.name, *(cell for kind in TIMES for cell in _points(row.window.times.get(kind))))
        for row in rows
    ]
    note = (
        "Milliseconds, from the servers' histograms: to the first token, per token of a request "
        "after its first one, and of whole requests."
    )
    return figure("Times", note, table(head, body, "table of times", _named(rows)))


def _points(quantiles: Quantiles | None) -> tuple[str, ...]:
    if quantiles is None:
        return (UNKNOWN,) * 3
    found = (quantiles.p50, quantiles.p90, quantiles.p99)
    return tuple(UNKNOWN if each is None else milliseconds(1000 * each) for each in found)


def _acceptance(rows: Sequence[_Row]) -> Iterator[Markup]:
    with_positions = [row for row in rows if row.window.acceptance_by_position]
    if with_positions:
        longest = max(len(row.window.acceptance_by_position) for row in with_positions)
        count = min(longest, _MOST_POSITIONS)
        head = ("replica", *map(str, range(1, count + 1)))
        cells = [
            (row.name, *_padded([share(each) for each in row.window.acceptance_by_position], count))
            for row in with_positions
        ]
        note = "Drafts whose first, second, … token was accepted, of all drafts."
        yield figure(
            "Acceptance by position", note,
            table(head, cells, "acceptance by position", _named(rows)),
        )  # fmt: skip
    bands = rows[0].window.bands
    if bands:
        head = ("temperature", "P10", "P50", "P90", "requests")
        cells = [
            (band, share(each.p10), share(each.p50), share(each.p90), f"{each.count:,.0f}")
            for band, each in bands.items()
        ]
        note = f"Acceptance rates of single requests, {rows[0].name}."
        yield figure(
            "Acceptance by temperature", note, table(head, cells, "acceptance by temperature")
        )  # fmt: skip


def _padded(cells: list[str], count: int) -> list[str]:
    return [*cells, *[UNKNOWN] * count][:count]


_LOAD: dict[str, Callable[[WindowFigures], Child]] = {
    "requests/s": lambda window: rate(window.requests_per_s),
    "running": lambda window: rate(window.running),
    "waiting": lambda window: rate(window.waiting),
    "KV cache": lambda window: percent(window.kv_usage),
    "preempted": lambda window: _count(window.preemptions),
    "prefix hits": lambda window: percent(window.prefix_hit_rate),
    "draft length": lambda window: rate(window.mean_k),
}


def _count(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:,.0f}"


def _load(rows: Sequence[_Row]) -> Markup:
    cells = [(row.name, *(cell(row.window) for cell in _LOAD.values())) for row in rows]
    return figure("Load", "Means; preemptions are counted.",
                  table(("replica", *_LOAD), cells, "table of load", _named(rows)))  # fmt: skip

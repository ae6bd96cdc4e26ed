"""Histories as JSON, small: what a watch needs to go on where it was ended.

The last minutes go in as one growth. A row is a growth; names and bounds are told once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.observe import reading as readings
from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import Growth
from outdraft.watch.history import Change, History

_FORMAT = 1
_MINUTES = 60  # so many are written; the rest is in the tens
_DIGITS = 6


class HistoryWriter:
    """Writes one history again and again: a minute that is over is put into words once."""

    def __init__(self) -> None:
        self._tables = _Tables()
        self._rows: dict[tuple[float, float], str] = {}  # from when to when

    def text(self, history: History) -> str:
        """JSON in one line."""
        known, self._rows = self._rows, {}
        rows = {
            "minutes": [self._row(each, known) for each in list(history.minutes)[-_MINUTES:]],
            "tens": [self._row(each, known) for each in history.tens],
            "minute": [compact(self._tables.row(each)) for each in _joined(history.minute_parts)],
            "ten": [compact(self._tables.row(each)) for each in _joined(history.ten_parts)],
        }
        values = {
            "format": _FORMAT,
            "interval_s": history.interval_s,
            "last": None if history.last is None else readings.to_json(history.last),
            "changes": [[each.at, each.what, each.before, each.after] for each in history.changes],
            "names": self._tables.names,
            "bounds": [
                [bound for bound in each if bound < math.inf] for each in self._tables.bounds
            ],
        }
        parts = [f"{compact(name)}:{compact(value)}" for name, value in values.items()]
        parts += [f"{compact(name)}:[{','.join(each)}]" for name, each in rows.items()]
        return f"{{{','.join(parts)}}}"

    def _row(self, growth: Growth, known: Mapping[tuple[float, float], str]) -> str:
        key = growth.start, growth.end
        text = known.get(key) or compact(self._tables.row(growth))
        self._rows[key] = text
        return text


def history_to_json(history: History) -> dict[str, Any]:
    written: dict[str, Any] = json.loads(HistoryWriter().text(history))
    return written


def history_from_json(data: Mapping[str, Any]) -> History:
    """ValueError where it is no history of ours."""
    try:
        if data["format"] != _FORMAT:
            raise ValueError(f"a history in form {data['format']}")
        return _history(data)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no history: {type(error).__name__}") from None


def _history(data: Mapping[str, Any]) -> History:
    tables = _Tables()
    tables.names = [str(name) for name in data["names"]]
    tables.bounds = [(*map(float, bounds), math.inf) for bounds in data["bounds"]]
    history = History(float(data["interval_s"]))
    if data["last"] is not None:
        history.last = readings.from_json(data["last"])
    for at, what, before, after in data["changes"]:
        history.changes.append(Change(float(at), str(what), str(before), str(after)))
    history.minutes.extend(tables.growth(row) for row in data["minutes"])
    history.tens.extend(tables.growth(row) for row in data["tens"])
    history.minute_parts = [tables.growth(row) for row in data["minute"]]
    history.ten_parts = [tables.growth(row) for row in data["ten"]]
    history.fine.extend(history.minute_parts)
    return history


def compact(data: object) -> str:
    """JSON without spaces."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False)


class _Tables:
    """Names and bounds by number."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.bounds: list[tuple[float, ...]] = []
        self._numbers: dict[object, int] = {}

    def row(self, growth: Growth) -> list[Any]:
        accepted = growth.acceptance
        return [
            growth.start,  # exact: neighbours touch
            growth.end,
            growth.num_restarts,
            _short(growth.gap_s),
            self._named(growth.counters),
            self._named(growth.gauge_seconds),
            self._histograms(growth.times),
            None
            if accepted is None
            else [
                accepted.num_drafts,
                accepted.num_draft_tokens,
                accepted.num_accepted_tokens,
                accepted.num_undrafted,
                accepted.accepted_per_position,
                accepted.drafted_per_position,
            ],
            self._histograms(growth.acceptance_shares),
            [
                [self._name(side), self._name(running), _short(tokens), _short(seconds)]
                for (side, running), (tokens, seconds) in growth.slices.items()
            ],
        ]

    def growth(self, row: Sequence[Any]) -> Growth:
        start, end, num_restarts, gap_s, counters, gauges, times, accepted, shares, slices = row
        return Growth(
            float(start),
            float(end),
            self._from_named(counters),
            self._from_named(gauges),
            self._from_histograms(times),
            None if accepted is None else Acceptance(*accepted),
            int(num_restarts),
            float(gap_s),
            self._from_histograms(shares),
            {
                (self.names[side], self.names[running]): (float(tokens), float(seconds))
                for side, running, tokens, seconds in slices
            },
        )

    def _name(self, name: str) -> int:
        return self._number(name, self.names)

    def _number(self, value: Any, table: list[Any]) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(table)
            table.append(value)
        return self._numbers[value]

    def _named(self, values: Mapping[str, float]) -> list[float]:
        """name, value, name, value, …"""
        return [
            part for name, value in values.items() for part in (self._name(name), _short(value))
        ]

    def _from_named(self, values: Sequence[float]) -> dict[str, float]:
        pairs = zip(values[::2], values[1::2], strict=True)
        return {self.names[int(name)]: float(value) for name, value in pairs}

    def _histograms(self, values: Mapping[str, Histogram]) -> list[Any]:
        return [
            [
                self._name(name),
                self._number(each.bounds, self.bounds),
                _short(each.sum),
                _without_zeros(each.counts),
            ]
            for name, each in values.items()
        ]

    def _from_histograms(self, values: Sequence[Any]) -> dict[str, Histogram]:
        found: dict[str, Histogram] = {}
        for name, bounds, sum_of_all, counts in values:
            every = [0.0] * len(self.bounds[bounds])
            for at, count in zip(counts[::2], counts[1::2], strict=True):
                every[at] = float(count)
            found[self.names[name]] = Histogram(self.bounds[bounds], tuple(every), sum_of_all)
        return found


def _without_zeros(counts: Sequence[float]) -> list[float]:
    """place, count, place, count, …"""
    return [part for at, each in enumerate(counts) if each for part in (at, _short(each))]


def _joined(parts: list[Growth]) -> list[Growth]:
    total = Growth.total(parts)
    return [] if total is None else [total]


def _short(value: float) -> float:
    """Whole numbers without a point, others with six digits."""
    if value == int(value):
        return int(value)
    return float(f"{value:.{_DIGITS}g}")

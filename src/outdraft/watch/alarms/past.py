"""A replica's past as columns of numbers: a row for every minute, and one for every ten. Pure.

Detectors look at it once a minute. Columns make that cheap: a stretch of time is a view of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import Growth
from outdraft.watch.history import Change

Floats = NDArray[np.float64]

MINUTE, HOUR = 60.0, 3600.0
_COLUMNS = ("start", "end", "seconds", "requests", "tokens", "prompt_tokens", "decode_seconds",
            "decode_tokens", "drafts", "draft_tokens", "accepted", "speculates", "running",
            "waiting", "kv_usage", "preemptions", "restarts")  # fmt: skip
_INDEX = {name: at for at, name in enumerate(_COLUMNS)}
_TIMES = ("tpot", "e2e")  # whose tails are looked at
_TOKENS_OF_A_REQUEST = 256.0  # where a server does not count requests (llama.cpp)


@dataclass(frozen=True, slots=True)
class Times:
    """Histograms of one time, a row for each row of the table."""

    bounds: tuple[float, ...] = ()
    counts: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def total(self) -> Histogram | None:
        if not self.counts.size:
            return None
        return Histogram(self.bounds, tuple(self.counts.sum(axis=0).tolist()), 0.0)


@dataclass(frozen=True, slots=True)
class Rows:
    """Neighbouring stretches of time, in order. What a server does not say is 0."""

    table: Floats  # (columns, rows)
    times: Mapping[str, Times]

    @classmethod
    def of(cls, growths: Sequence[Growth]) -> Rows:
        table = np.array([_row(each) for each in growths]).reshape(-1, len(_COLUMNS)).T
        return cls(np.ascontiguousarray(table), {name: _times(growths, name) for name in _TIMES})

    def __len__(self) -> int:
        return int(self.table.shape[1])

    def __getitem__(self, name: str) -> Floats:
        column: Floats = self.table[_INDEX[name]]
        return column

    @property
    def end(self) -> float:
        return float(self["end"][-1]) if len(self) else 0.0

    def sum(self, name: str) -> float:
        return float(self[name].sum())

    def mean(self, name: str) -> float:
        """Of a gauge, over time."""
        seconds = self.sum("seconds")
        return float(self[name] @ self["seconds"]) / seconds if seconds > 0 else 0.0

    def between(self, start: float, end: float) -> Rows:
        """Those that lie after `start`, for half of them or more, and end by `end`."""
        first = int(np.searchsorted((self["start"] + self["end"]) / 2, start))
        last = int(np.searchsorted(self["end"], end + 1e-6, side="right"))
        return self._part(slice(first, max(last, first)))

    def where(self, wanted: NDArray[np.bool_]) -> Rows:
        return self._part(wanted)

    def extended(self, growths: Iterable[Growth], keep_s: float) -> Rows:
        """With those that begin where this ends or later; what is older than `keep_s` goes."""
        new = [each for each in growths if each.start >= self.end - 1e-6]
        if not new:
            return self
        added = Rows.of(new)
        kept = self.between(added.end - keep_s, added.end)
        table = np.concatenate([kept.table, added.table], axis=1)
        return Rows(table, {name: _joined(kept, added, name) for name in _TIMES})

    def _part(self, part: slice | NDArray[np.bool_]) -> Rows:
        return Rows(
            self.table[:, part],
            {name: Times(each.bounds, each.counts[part]) for name, each in self.times.items()},
        )


@dataclass(frozen=True, slots=True)
class Past:
    """What detectors see of one replica."""

    minutes: Rows  # of the last hours
    tens: Rows  # ten minutes each, of the last two days
    changes: tuple[Change, ...] = ()
    model: str | None = None
    is_off_on_purpose: bool = False  # speculation was turned off, or is about to be
    engine: str | None = None
    drafts_as_it_pays: bool = False  # whether to draft is chosen in each round (our method auto)
    method: str | None = None  # that it drafts with, where it says so


def _row(growth: Growth) -> tuple[float, ...]:
    counters, counts = growth.counters, growth.acceptance
    tokens = counters.get("num_tokens", 0.0)
    return (
        growth.start,
        growth.end,
        growth.seconds,
        counters.get("num_requests", tokens / _TOKENS_OF_A_REQUEST),
        tokens,
        counters.get("num_prompt_tokens", 0.0),
        counters.get("decode_seconds", 0.0),
        counters.get("decode_tokens", 0.0),
        counts.num_drafts if counts else 0.0,
        counts.num_draft_tokens if counts else 0.0,
        counts.num_accepted_tokens if counts else 0.0,
        float(counts is not None),
        growth.gauge("running_requests") or 0.0,
        growth.gauge("waiting_requests") or 0.0,
        growth.gauge("kv_cache_usage") or 0.0,
        counters.get("num_preemptions", 0.0),
        growth.num_restarts,
    )


def _times(growths: Sequence[Growth], name: str) -> Times:
    """With the bounds of the newest; rows with others are empty (another version's buckets)."""
    found = [each.times.get(name) for each in growths]
    newest = next((each for each in reversed(found) if each is not None), None)
    if newest is None:
        return Times((), np.zeros((len(growths), 0)))
    empty = (0.0,) * len(newest.bounds)
    counts = [each.counts if each and each.bounds == newest.bounds else empty for each in found]
    return Times(newest.bounds, np.array(counts))


def _joined(before: Rows, after: Rows, name: str) -> Times:
    old, new = before.times[name], after.times[name]
    if not new.bounds:
        return Times(old.bounds, _stacked(old.counts, np.zeros((len(after), len(old.bounds)))))
    kept = old.counts if old.bounds == new.bounds else np.zeros((len(before), len(new.bounds)))
    return Times(new.bounds, _stacked(kept, new.counts))


def _stacked(before: Floats, after: Floats) -> Floats:
    return np.concatenate([before, after], axis=0)

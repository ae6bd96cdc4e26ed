"""What each replica did: in fine steps lately, in coarser ones for two days. Memory stays flat.

A replica's history keeps every growth of ten minutes, one of each minute of four hours and one of
each ten minutes of two days: 120 + 240 + 288 growths with a scrape every 5 s, of 1 to 4 kB each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from outdraft.observe.reading import Growth, Reading, carried, growth
from outdraft.watch.scraper import Unreadable

FINE_S, MINUTES_S, TENS_S = 600.0, 4 * 3600.0, 48 * 3600.0
_MINUTE_S, _TEN_S = 60.0, 600.0
_MAX_FINE = 3_000  # ten minutes of the shortest interval
_MAX_CHANGES = 32
_GAP_INTERVALS = 2.5
_KEPT_S = 6 * 3600.0  # after a replica was last read
_MAX_HISTORIES = 2_000


@dataclass(frozen=True, slots=True)
class Change:
    """A deployment, as far as it can be seen."""

    at: float
    what: str  # "engine", "model", "version"
    before: str
    after: str


class History:
    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.fine: deque[Growth] = deque(maxlen=_MAX_FINE)
        self.minutes: deque[Growth] = deque(maxlen=int(MINUTES_S / _MINUTE_S))  # whole ones
        self.tens: deque[Growth] = deque(maxlen=int(TENS_S / _TEN_S))
        self.changes: deque[Change] = deque(maxlen=_MAX_CHANGES)
        self.last: Reading | None = None  # with what earlier pages had and this one lacks
        self.minute_parts: list[Growth] = []  # of the minute and the ten minutes that are not over
        self.ten_parts: list[Growth] = []

    def add(self, reading: Reading, interval_s: float | None = None) -> Growth | None:
        """None at the first look, and where the clock went back. `interval_s`: between looks,
        where they were others than now."""
        interval_s = interval_s or self.interval_s
        last = self.last
        if last is not None and _is_of_before(reading, last):
            return None  # what it says is counted already
        self.last = reading if last is None else carried(last, reading)
        if last is None or not last.at < reading.at < last.at + TENS_S:
            return None
        passed_s = reading.at - last.at
        is_gap = passed_s > _GAP_INTERVALS * interval_s
        grown = growth(last, reading, passed_s - interval_s if is_gap else 0.0)
        self._remember_changes(last, reading)
        self._keep(grown)
        return grown

    def window(self, seconds: float, now: float) -> Growth | None:
        """What happened in the last so many seconds; None where nothing was seen."""
        return Growth.total(self.parts(now - seconds))

    def parts(self, since: float) -> list[Growth]:
        """Growths that follow one another, coarse in the middle: as few as tell what happened."""
        tens = [each for each in self.tens if each.start >= since]
        minutes = _beside(self.minutes, tens, since)
        fine = [
            each
            for each in _beside(self.fine, sorted([*tens, *minutes], key=_start), -1.0)
            if (each.start + each.end) / 2 >= since
        ]
        return sorted([*tens, *minutes, *fine], key=_start)

    @property
    def is_stopped(self) -> bool:
        """Somebody turned drafts off while the server runs."""
        return self.last is not None and self.last.is_stopped

    @property
    def method(self) -> str | None:
        """That it drafts with, where it says so."""
        return None if self.last is None else self.last.method

    @property
    def drafts_as_it_pays(self) -> bool:
        """Whether to draft, and how far, is chosen in each round."""
        return self.method == "auto"

    @property
    def speculates(self) -> bool:
        """Also of one that was just restarted and wrote nothing yet: some engines have counters of
        drafts from their first text on."""
        if self.last is None or self.last.speculates:
            return self.last is not None
        for each in reversed(self.fine):
            if each.acceptance is not None:
                return True
            if each.counters.get("num_tokens", 0.0) > 0:
                return False
        return False

    @property
    def started_at(self) -> float | None:
        """Since when something is known."""
        starts = [kept[0].start for kept in (self.tens, self.minutes, self.fine) if kept]
        return min(starts, default=None)

    def _keep(self, grown: Growth) -> None:
        if self.minute_parts and _index(self.minute_parts, _MINUTE_S) != grown.end // _MINUTE_S:
            self._end_minute(grown.end)
        self.fine.append(grown)
        self.minute_parts.append(grown)
        while self.fine[0].end < grown.end - FINE_S:
            self.fine.popleft()
        for kept, kept_s in ((self.minutes, MINUTES_S), (self.tens, TENS_S)):
            while kept and kept[0].end < grown.end - kept_s:
                kept.popleft()

    def _end_minute(self, now: float) -> None:
        minute = Growth.total(self.minute_parts)
        assert minute is not None
        self.minute_parts = []
        if self.ten_parts and _index(self.ten_parts, _TEN_S) != minute.end // _TEN_S:
            self._end_ten()
        self.minutes.append(minute)
        self.ten_parts.append(minute)
        if minute.end // _TEN_S != now // _TEN_S:
            self._end_ten()

    def _end_ten(self) -> None:
        ten = Growth.total(self.ten_parts)
        assert ten is not None
        self.tens.append(ten)
        self.ten_parts = []

    def _remember_changes(self, last: Reading, reading: Reading) -> None:
        for what in ("engine", "model", "version"):
            before, after = getattr(last, what), getattr(reading, what)
            if before is not None and after is not None and before != after:
                self.changes.append(Change(reading.at, what, before, after))


class Histories:
    """Of all replicas, also of those that went, for six hours."""

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self._histories: dict[str, History] = {}

    def update(
        self,
        found: Mapping[str, Reading | Unreadable],
        now: float,
        interval_s: float | None = None,
    ) -> dict[str, Growth]:
        """What each replica did since its last reading."""
        grown: dict[str, Growth] = {}
        for name, each in found.items():
            if isinstance(each, Reading):
                history = self._histories.setdefault(name, History(self.interval_s))
                if (growth_since := history.add(each, interval_s)) is not None:
                    grown[name] = growth_since
        self._forget(now)
        return grown

    def is_newer(self, name: str, reading: Reading) -> bool:
        """Than all that is known of this replica."""
        last = self._histories[name].last if name in self._histories else None
        return last is None or reading.at > last.at

    def restore(self, histories: Mapping[str, History]) -> None:
        self._histories = {**histories, **self._histories}

    def __getitem__(self, name: str) -> History:
        return self._histories[name]

    def __contains__(self, name: object) -> bool:
        return name in self._histories

    def __iter__(self) -> Iterator[str]:
        return iter(self._histories)

    def __len__(self) -> int:
        return len(self._histories)

    def items(self) -> Iterator[tuple[str, History]]:
        return iter(self._histories.items())

    def _forget(self, now: float) -> None:
        def last_seen(name: str) -> float:
            last = self._histories[name].last
            return last.at if last else 0.0

        for name in [name for name in self._histories if last_seen(name) < now - _KEPT_S]:
            del self._histories[name]
        if len(self._histories) > _MAX_HISTORIES:
            oldest = sorted(self._histories, key=last_seen)[:-_MAX_HISTORIES]
            for name in oldest:
                del self._histories[name]


def _is_of_before(reading: Reading, last: Reading) -> bool:
    """An older page that came late, as a Prometheus may send it; where only the clock went back,
    the server has counted on."""
    if not last.at - FINE_S < reading.at <= last.at:
        return False
    return all(value <= last.counters.get(name, 0.0) for name, value in reading.counters.items())


def _beside(kept: Sequence[Growth], covered: Sequence[Growth], since: float) -> list[Growth]:
    """Those that lie before or after what is covered already."""
    wanted = (each for each in kept if each.start >= since)
    if not covered:
        return list(wanted)
    first, last = covered[0].start, covered[-1].end
    return [each for each in wanted if each.end <= first or each.start >= last]


def _start(part: Growth) -> float:
    return part.start


def _index(parts: Sequence[Growth], length_s: float) -> float:
    return parts[-1].end // length_s

"""The last figures of each replica, thinned out as time goes on: what the page's charts show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from outdraft.watch.snapshot import ReplicaView, Snapshot

MOST_POINTS = 480


class Point(NamedTuple):
    """Of one replica, or of all together, at one moment."""

    acceptance_rate: float | None = None
    benefit: float | None = None
    low: float | None = None
    high: float | None = None
    seconds_per_token: float | None = None
    alarms: tuple[str, ...] = ()  # their kinds

    @classmethod
    def of(cls, view: ReplicaView) -> Point:
        window, benefit = view.window, view.benefit
        return cls(
            None if window is None else window.acceptance_rate,
            None if benefit is None else benefit.estimate,
            None if benefit is None else benefit.low,
            None if benefit is None else benefit.high,
            None if window is None else window.seconds_per_token,
            tuple(dict.fromkeys(alarm.kind for alarm in view.alarms)),
        )


class Span(NamedTuple):
    """An alarm that stood from `start` to `end`."""

    replica: str
    kind: str
    start: float
    end: float


@dataclass(slots=True)
class Trail:
    """Never more than MOST_POINTS moments: when it is full, every second one is left out, and
    later ones are kept as far apart."""

    points: list[tuple[float, dict[str, Point]]] = field(default_factory=list)
    apart_s: float = 0.0

    def add(self, snapshot: Snapshot) -> None:
        if self.points and snapshot.at - self.points[-1][0] < self.apart_s:
            return
        views = (snapshot.fleet, *snapshot.replicas)
        self.put(snapshot.at, {view.name: Point.of(view) for view in views})

    def put(self, at: float, points: dict[str, Point]) -> None:
        self.points.append((at, points))
        if len(self.points) > MOST_POINTS:
            self.points = self.points[::2]
            first, last = self.points[0][0], self.points[-1][0]
            self.apart_s = (last - first) / (len(self.points) - 1)

    def of(self, name: str) -> list[tuple[float, Point]]:
        return [(at, points[name]) for at, points in self.points if name in points]

    def spans(self, names: Iterable[str]) -> list[Span]:
        """Each stretch in which an alarm stood, as far as it was kept."""
        found: list[Span] = []
        for name in names:
            open_: dict[str, float] = {}
            at = 0.0
            for at, point in self.of(name):
                for kind in point.alarms:
                    open_.setdefault(kind, at)
                ended = [kind for kind in open_ if kind not in point.alarms]
                found += [Span(name, kind, open_.pop(kind), at) for kind in ended]
            found += [Span(name, kind, start, at) for kind, start in open_.items()]
        return sorted(found, key=lambda span: span.start)

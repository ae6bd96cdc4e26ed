"""What each replica did, as columns of numbers: made once, and longer with every minute."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from outdraft.watch.actions import Speed
from outdraft.watch.alarms import Past, Rows
from outdraft.watch.alarms.robust import token_pace
from outdraft.watch.history import MINUTES_S, TENS_S, History

SPEED_MINUTES = 3  # over which a speed is measured at least, before and after a deed


class Pasts:
    def __init__(self) -> None:
        self._rows: dict[str, tuple[Rows, Rows]] = {}

    def of(self, histories: Mapping[str, History], off: Collection[str]) -> dict[str, Past]:
        """`off`: those that were advised to be without speculation."""
        found = {name: self._past(name, each, name in off) for name, each in histories.items()}
        self._rows = {name: self._rows[name] for name in histories}
        return found

    def speed(self, name: str, start: float, end: float) -> Speed | None:
        rows = self._minutes(name, start, end)
        pace = token_pace(rows)
        if pace is None or len(rows) < SPEED_MINUTES:
            return None
        return Speed(pace.seconds, pace.error, pace.running)

    def wrote_since(self, name: str, at: float) -> bool:
        """False of one that is absent: what nobody saw is no sign of life."""
        return self._minutes(name, at, math.inf).sum("tokens") > 0

    def _minutes(self, name: str, start: float, end: float) -> Rows:
        return self._rows[name][0].between(start, end) if name in self._rows else Rows.of(())

    def _past(self, name: str, history: History, is_off: bool) -> Past:
        minutes, tens = self._rows.get(name) or (Rows.of(()), Rows.of(()))
        minutes = minutes.extended(history.minutes, MINUTES_S)
        tens = tens.extended(history.tens, TENS_S)
        self._rows[name] = minutes, tens
        last = history.last
        return Past(
            minutes,
            tens,
            tuple(history.changes),
            None if last is None else last.model,
            is_off or history.is_stopped,
            None if last is None else last.engine,
            history.drafts_as_it_pays,
            history.method,
        )

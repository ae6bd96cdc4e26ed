"""Which alarms stand: raised once, kept while there is evidence and a while longer. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from outdraft.watch.alarms.words import KINDS
from outdraft.watch.findings import Alarm

Key = tuple[str, str]  # kind, replica


@dataclass(frozen=True, slots=True)
class Standings:
    """Alarms by kind and replica, and when each was last seen."""

    alarms: Mapping[Key, Alarm]
    seen: Mapping[Key, float]

    def of(self, replica: str) -> tuple[Alarm, ...]:
        return tuple(alarm for alarm in self.alarms.values() if alarm.replica == replica)

    def with_alarm(self, alarm: Alarm, seen: float) -> Standings:
        key = alarm.kind, alarm.replica
        return Standings({**self.alarms, key: alarm}, {**self.seen, key: seen})

    def without(self, key: Key) -> Standings:
        return Standings(
            {each: alarm for each, alarm in self.alarms.items() if each != key},
            {each: seen for each, seen in self.seen.items() if each != key},
        )


NOTHING_STANDS = Standings({}, {})


def stand(
    before: Standings, found: Iterable[Alarm], now: float, replicas: Collection[str]
) -> tuple[Standings, tuple[Alarm, ...], tuple[Alarm, ...]]:
    """What stands now, what was raised, what ended. An alarm keeps its beginning and shows the
    newest evidence; one of a replica that is gone ends."""
    alarms, seen = dict(before.alarms), dict(before.seen)
    raised: list[Alarm] = []
    for alarm in found:
        key = alarm.kind, alarm.replica
        known = alarms.get(key)
        if known is None:
            raised.append(alarm)
        alarms[key] = alarm if known is None else replace(alarm, since=known.since)
        seen[key] = now
    ended = [
        alarm
        for key, alarm in alarms.items()
        if now - seen[key] >= KINDS[alarm.kind].ends_s or alarm.replica not in replicas
    ]
    for alarm in ended:
        del alarms[alarm.kind, alarm.replica], seen[alarm.kind, alarm.replica]
    return Standings(alarms, seen), tuple(raised), tuple(ended)

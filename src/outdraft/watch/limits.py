"""Limits of draft lengths that a server takes while it runs: what a deed makes of them. Pure.

The server's words for them are those of `POST /admin/speculation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outdraft.observe.reading import TEMPERATURE
from outdraft.speculation import MAX_K
from outdraft.workload.temperatures import BANDS

# Of the decoding time, in which a server that was turned off still drafts: else nobody would ever
# see that it pays again.
_CANARY_SHARE = 0.01
_LOAD = re.compile(r"(\d+)(?:-(\d+))? at a time")

ByLoad = tuple[tuple[int, int], ...]  # (from so many running texts on, k); () is no limit


@dataclass(frozen=True, slots=True)
class ServerLimits:
    by_load: ByLoad = ()
    temperatures: tuple[str, ...] = ()  # bands that get no drafts
    canary_share: float | None = None  # None: the server does not say

    @classmethod
    def from_json(cls, data: Any) -> ServerLimits:
        """As a state has them; an earlier version kept loads alone."""
        if not isinstance(data, Mapping):
            data = {"by_load": data}
        by_load = tuple((at, k) for at, k in data["by_load"])
        temperatures = tuple(data.get("temperatures", ()))
        return cls(**{**data, "by_load": by_load, "temperatures": temperatures})

    @classmethod
    def shown(cls, answer: Mapping[str, Any]) -> ServerLimits:
        """As the server shows them. LookupError, TypeError or ValueError where it does not."""
        share = answer.get("canary_share")
        by_load = tuple((int(start), int(k)) for start, k in answer["limits"])
        temperatures = tuple(map(str, answer.get("temperatures", ())))
        return cls(by_load, temperatures, None if share is None else float(share))

    def body(self) -> dict[str, Any]:
        """Sets exactly these."""
        more: dict[str, Any] = {}
        if self.temperatures:
            more["temperatures"] = list(self.temperatures)
        if self.canary_share is not None:
            more["canary_share"] = self.canary_share
        if len(self.by_load) <= 1:
            return {"max_k": self.by_load[0][1] if self.by_load else None, **more}
        return {"schedule": [list(each) for each in self.by_load], **more}

    def lowered(self, k: int) -> ServerLimits:
        return replace(self, by_load=lowered(self.by_load, k))

    def without_drafts(self, part: str) -> ServerLimits | None:
        """For a part of the traffic; None where our server has no words for it."""
        if (bands := temperatures_of(part)) is not None:
            more = tuple(band for band in bands if band not in self.temperatures)
            return replace(
                self,
                temperatures=(*self.temperatures, *more),
                canary_share=self._share_while_off(),
            )
        if (loads := loads_of(part)) is None:
            return None
        by_load = without_loads(self.by_load, loads)
        return replace(self, by_load=by_load, canary_share=self._share_while_off())

    def turned_off(self) -> ServerLimits:
        return replace(self, by_load=((1, 0),), canary_share=self._share_while_off())

    def _share_while_off(self) -> float | None:
        return None if self.canary_share is None else max(self.canary_share, _CANARY_SHARE)


def loads_of(part: str) -> tuple[tuple[int, int], ...] | None:
    """Loads in words → (from, to); None where a part is no load (a band of temperatures)."""
    found = []
    for each in part.split(", "):
        matched = _LOAD.fullmatch(each)
        if matched is None:
            return None
        first = int(matched[1])
        found.append((first, int(matched[2]) if matched[2] else first))
    return tuple(sorted(found))


def temperatures_of(part: str) -> tuple[str, ...] | None:
    """Bands of temperatures in words → their names; None where a part is no such band."""
    found = [each.removeprefix(TEMPERATURE) for each in part.split(", ")]
    is_all = all(each.startswith(TEMPERATURE) for each in part.split(", "))
    return tuple(found) if is_all and set(found) <= set(BANDS) else None


def lowered(by_load: ByLoad, k: int) -> ByLoad:
    return _lower(by_load, ((1, k),))


def without_loads(by_load: ByLoad, loads: Iterable[tuple[int, int]]) -> ByLoad:
    """`loads`: (from, to), in order."""
    ks = {1: MAX_K}
    for first, last in loads:
        ks[first] = 0
        ks.setdefault(last + 1, MAX_K)
    return _lower(by_load, tuple(sorted(ks.items())))


def _lower(one: ByLoad, other: ByLoad) -> ByLoad:
    """The lower one at every load: a limit that is there is never lifted."""
    if not one:
        return other
    found: list[tuple[int, int]] = []
    for start in sorted({start for start, _ in (*one, *other)}):
        k = min(_k_at(one, start), _k_at(other, start))
        if not found or found[-1][1] != k:
            found.append((start, k))
    return tuple(found)


def _k_at(limits: ByLoad, running: int) -> int:
    return next((k for start, k in reversed(limits) if start <= running), MAX_K)

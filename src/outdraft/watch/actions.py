"""What `--act` does, and whether it helped. Pure: doing it is in `acting`.

A deed follows an advice. After the dwell time it is looked at: texts must come clearly faster than
before, or the benefit must be clearly higher. One that did not help is taken back, and the same is
not done again for a day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from outdraft.speculation import MAX_K
from outdraft.watch.findings import Action, Advice, Benefit

_BARRED_S = 24 * 3600.0
_HOUR_S = 3600.0
_CLEAR = 1.96  # standard errors
_SAME_LOAD = (0.6, 1.6)
_LOOKS = 3  # dwell times after which what is still unclear did not help
_LOAD = re.compile(r"(\d+)(?:-(\d+))? at a time")


class DeedState(StrEnum):
    ASKED = "asked"  # is being done
    DONE = "done"  # it is not known yet whether it helped
    HELPED = "helped"
    FAILED = "failed"  # could not be done
    TAKEN_BACK = "taken back"  # that is decided and being done
    BACK = "back"  # all is as it was


# Somebody has to do something; after a restart it is done once more.
TO_DO = (DeedState.ASKED, DeedState.TAKEN_BACK)
_OPEN = (*TO_DO, DeedState.DONE)


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds per token of a text, before or after a deed."""

    seconds: float
    error: float
    running: float


@dataclass(frozen=True, slots=True)
class Deed:
    replica: str
    action: Action
    k: int | None
    part: str
    at: float
    state: DeedState = DeedState.ASKED
    speed: Speed | None = None  # before it
    benefit: Benefit | None = None  # before it

    @property
    def words(self) -> str:
        return Advice(self.action, self.replica, self.at, "", self.k, self.part).words

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Deed:
        speed, benefit = data.get("speed"), data.get("benefit")
        return cls(
            **{
                **data,
                "action": Action(data["action"]),
                "state": DeedState(data["state"]),
                "speed": None if speed is None else Speed(**speed),
                "benefit": None if benefit is None else Benefit.from_json(benefit),
            }
        )


@dataclass(frozen=True, slots=True)
class Deeds:
    newest: Mapping[str, Deed] = field(default_factory=dict)  # by replica
    times: tuple[float, ...] = ()  # of the last hour
    barred: Mapping[str, float] = field(default_factory=dict)  # "replica words" → until when

    def with_deed(self, deed: Deed) -> Deeds:
        is_new = deed.state is DeedState.ASKED
        times = (*self.times, deed.at) if is_new else self.times
        return replace(
            self,
            newest={**self.newest, deed.replica: deed},
            times=tuple(each for each in times if each > deed.at - _HOUR_S),
        )

    def ended(self, deed: Deed, now: float) -> Deeds:
        """Taken back, or not possible: not again for a day."""
        barred = {key: until for key, until in self.barred.items() if until > now}
        barred[_key(deed)] = now + _BARRED_S
        return replace(self.with_deed(deed), barred=barred)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Deeds:
        newest = {name: Deed.from_json(each) for name, each in data["newest"].items()}
        return cls(newest, tuple(data["times"]), dict(data["barred"]))


def next_deed(
    deeds: Deeds, advice: Advice, now: float, *, speed: Speed | None, most_per_hour: int
) -> Deed | None:
    """What follows from an advice now; None where nothing has to be done, or not yet."""
    if advice.action is Action.KEEP:
        return None
    last = deeds.newest.get(advice.replica)
    if last is not None and last.state in _OPEN:
        return None  # first it is seen what that one did
    deed = Deed(
        advice.replica, advice.action, advice.k, advice.part, now,
        speed=speed, benefit=advice.benefit,
    )  # fmt: skip
    if last is not None and last.state is DeedState.HELPED and last.words == deed.words:
        return None
    if deeds.barred.get(_key(deed), 0.0) > now:
        return None
    recent = [at for at in deeds.times if at > now - _HOUR_S]
    return deed if len(recent) < most_per_hour else None


def judged(
    deed: Deed, speed: Speed | None, benefit: Benefit | None, now: float, dwell_s: float
) -> tuple[DeedState, str]:
    """DONE: it is too early to say. With the figures."""
    if now - deed.at < dwell_s:
        return DeedState.DONE, ""
    gain = _gain(deed, speed, benefit)
    if gain is not None:
        change, error, words = gain
        if change > _CLEAR * error:
            return DeedState.HELPED, words
        if change < -_CLEAR * error:
            return DeedState.TAKEN_BACK, words
    if now - deed.at < _LOOKS * dwell_s:
        return DeedState.DONE, ""
    words = "nothing to compare with was seen" if gain is None else gain[2]
    return DeedState.TAKEN_BACK, f"not clearly better: {words}"


def _gain(
    deed: Deed, speed: Speed | None, benefit: Benefit | None
) -> tuple[float, float, str] | None:
    """The logarithm of how much faster it is now, its error, and that in words."""
    before = deed.benefit
    errors = _error(before), _error(benefit)
    if (
        deed.action is not Action.TURN_OFF
        and before is not None
        and benefit is not None
        and before.source is benefit.source
        and errors[0] is not None
        and errors[1] is not None
    ):
        change = math.log(benefit.estimate / before.estimate)
        words = f"net benefit {benefit.estimate:.2f} after {before.estimate:.2f}"
        return change, math.hypot(errors[0], errors[1]), words
    if deed.speed is None or speed is None:
        return None
    load = (speed.running + 0.5) / (deed.speed.running + 0.5)
    if not _SAME_LOAD[0] <= load <= _SAME_LOAD[1]:
        return None
    error = math.hypot(deed.speed.error / deed.speed.seconds, speed.error / speed.seconds)
    words = f"{1e3 * speed.seconds:.3g} ms per token after {1e3 * deed.speed.seconds:.3g}"
    return math.log(deed.speed.seconds / speed.seconds), error, words


def _error(benefit: Benefit | None) -> float | None:
    """Standard error of its logarithm."""
    if benefit is None or benefit.low is None or benefit.high is None or benefit.low <= 0:
        return None
    return (math.log(benefit.high) - math.log(benefit.low)) / (2 * _CLEAR)


def loads_of(part: str) -> tuple[tuple[int, int | None], ...] | None:
    """Loads in words → (from, to); None where a part is no load (a band of temperatures)."""
    found = []
    for each in part.split(", "):
        matched = _LOAD.fullmatch(each)
        if matched is None:
            return None
        first = int(matched[1])
        found.append((first, int(matched[2]) if matched[2] else first))
    return tuple(sorted(found))


def limits_body(deed: Deed) -> dict[str, Any] | None:
    """What our server's admin endpoint is told; None where it has no words for it."""
    if deed.action is Action.TURN_OFF:
        return {"max_k": 0}
    if deed.action is Action.LOWER_K:
        return {"max_k": deed.k}
    loads = loads_of(deed.part)
    if loads is None:
        return None
    ks = {1: MAX_K}  # from so many running texts on
    for first, last in loads:
        ks[first] = 0
        if last is not None:
            ks.setdefault(last + 1, MAX_K)
    return {"schedule": [[running, ks[running]] for running in sorted(ks)]}


def _key(deed: Deed) -> str:
    return f"{deed.replica} {deed.words}"

"""What `--act` does, and whether it helped. Pure: doing it is in `acting`.

A deed follows an advice. After the dwell time it is looked at: slices of the canary must say it
again, or under about the same load texts must come clearly faster than before, or the benefit be
clearly higher. One that was seen not to help is taken back, and the same is not done again for a
day. One of which nothing can be said stays. What was turned off by us is turned on again by us.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from outdraft.observe.reading import Reading
from outdraft.watch.findings import Action, Advice, Benefit, Source
from outdraft.watch.limits import ServerLimits

BARRED_S = 24 * 3600.0
_PASSING_S = 600.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 30.0, 3600.0  # before it is tried again to take one back
_HOUR_S = 3600.0
_KEPT_S = BARRED_S + _HOUR_S  # of a replica that is gone: bars begin some dwell times after a deed
_CLEAR = 1.96  # standard errors
_SAME_LOAD = (0.8, 1.25)
_LOOKS = 3  # dwell times after which nothing new is waited for


class DeedState(StrEnum):
    ASKED = "asked"  # is being done
    DONE = "done"  # it is not known yet whether it helped
    HELPED = "helped"
    NOT_KNOWN = "not known"  # done and left so: nothing says whether it helped
    FAILED = "failed"  # could not be done
    TAKEN_BACK = "taken back"  # that is decided and being done
    BACK = "back"  # all is as it was
    GONE = "gone"  # somebody else undid it, or a restart did


# Somebody has to do something; after a restart it is done once more.
TO_DO = (DeedState.ASKED, DeedState.TAKEN_BACK)
OPEN = (*TO_DO, DeedState.DONE)
STANDS = (DeedState.HELPED, DeedState.NOT_KNOWN)
OURS = "outdraft"  # the engine whose servers are told what to do over HTTP
Kind = tuple[str | None, str | None]  # engine, model
OFF_ACTIONS = (Action.TURN_OFF, Action.TURN_OFF_FOR)


class Passing(str):
    """A problem that may be gone in some minutes: nobody answered, or not in time."""

    __slots__ = ()


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
    at: float  # when it was asked for; once it is done, when that was
    state: DeedState = DeedState.ASKED
    speed: Speed | None = None  # before it
    benefit: Benefit | None = None  # before it, of the part that it is about where that is known
    limits: ServerLimits | None = None  # of our server before it; None: they were not read
    on_limits: ServerLimits | None = None  # of our server before we turned anything off
    tries: int = 0  # to take it back that failed
    again_at: float | None = None  # when it may be tried again
    engine: str | None = None  # of the replica, as it was when this was asked for
    model: str | None = None

    @property
    def kind(self) -> Kind:
        return self.engine, self.model

    @property
    def words(self) -> str:
        return Advice(self.action, self.replica, self.at, "", self.k, self.part).words

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Deed:
        speed, benefit = data.get("speed"), data.get("benefit")
        limits, on_limits = (
            None if each is None else ServerLimits.from_json(each)
            for each in (data.get("limits"), data.get("on_limits"))
        )
        return cls(
            **{
                **data,
                "action": Action(data["action"]),
                "state": DeedState(data["state"]),
                "speed": None if speed is None else Speed(**speed),
                "benefit": None if benefit is None else Benefit.from_json(benefit),
                "limits": limits,
                "on_limits": on_limits,
            }
        )

    def with_limits(self, limits: ServerLimits | None) -> Deed:
        """That were read before it."""
        on_limits = (
            limits if self.on_limits is None and self.action in OFF_ACTIONS else self.on_limits
        )
        return replace(self, limits=limits, on_limits=on_limits)

    def wanted_limits(self) -> ServerLimits | None:
        """What our server is told; None where it has no words for it."""
        before = self.limits or ServerLimits()
        if self.action is Action.TURN_OFF:
            return before.turned_off()
        if self.action is Action.TURN_ON:
            return self.on_limits
        if self.action is Action.LOWER_K:
            return None if self.k is None else before.lowered(self.k)
        return before.without_drafts(self.part)

    def ended(self, problem: str, now: float) -> Deed:
        """After it was done, or taken back, or that went wrong: taking back is tried again."""
        if self.state is DeedState.TAKEN_BACK:
            if not problem:
                return replace(self, state=DeedState.BACK, again_at=None)
            pause_s = min(_FIRST_PAUSE_S * 2.0 ** min(self.tries, 20), _LONGEST_PAUSE_S)
            return replace(self, tries=self.tries + 1, again_at=now + pause_s)
        if not problem:
            return replace(self, state=DeedState.DONE, at=now)
        barred_s = _PASSING_S if isinstance(problem, Passing) else BARRED_S
        return replace(self, state=DeedState.FAILED, at=now, again_at=now + barred_s)


@dataclass(frozen=True, slots=True)
class Deeds:
    newest: Mapping[str, Deed] = field(default_factory=dict)  # by replica
    times: tuple[float, ...] = ()  # of the last hour
    barred: Mapping[str, float] = field(default_factory=dict)  # "replica words" → until when
    # The same of those that were taken back, and not of those that failed: a bar for fellows too.
    unhelpful: Mapping[str, float] = field(default_factory=dict)

    def with_deed(self, deed: Deed) -> Deeds:
        known = self.newest.get(deed.replica)
        is_asked = known is not None and known.state is DeedState.ASKED
        is_new = deed.state is DeedState.ASKED and not is_asked
        times = (*self.times, deed.at) if is_new else self.times
        return replace(
            self,
            newest={**self.newest, deed.replica: deed},
            times=tuple(each for each in times if each > deed.at - _HOUR_S),
        )

    def ended(self, deed: Deed, now: float) -> Deeds:
        """Taken back, or not possible: not again for a day, or as long as the deed says."""
        barred, unhelpful = _until(self.barred, now), _until(self.unhelpful, now)
        until = deed.again_at if deed.state is DeedState.FAILED else None
        barred[_key(deed)] = now + BARRED_S if until is None else until
        if deed.state is DeedState.TAKEN_BACK:
            unhelpful[_key(deed)] = now + BARRED_S
        return replace(self.with_deed(deed), barred=barred, unhelpful=unhelpful)

    def did_not_help(self, replica: str, words: str, now: float) -> bool:
        """In the last day."""
        return self.unhelpful.get(f"{replica} {words}", 0.0) > now

    def unfinished(self) -> tuple[Deed, ...]:
        return tuple(deed for deed in self.newest.values() if deed.state in TO_DO)

    def without_gone(self, known: Container[str], now: float) -> Deeds:
        """Replicas come and go: of one that is not known any more nothing is kept for long."""
        newest = {
            name: deed
            for name, deed in self.newest.items()
            if name in known or now - deed.at <= _KEPT_S
        }
        if len(newest) == len(self.newest):
            return self
        barred, unhelpful = _until(self.barred, now), _until(self.unhelpful, now)
        return replace(self, newest=newest, barred=barred, unhelpful=unhelpful)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Deeds:
        newest = {name: Deed.from_json(each) for name, each in data["newest"].items()}
        barred = dict(data["barred"])
        unhelpful = data.get("unhelpful")
        if unhelpful is None:  # an earlier version had one table for both
            backs = (DeedState.TAKEN_BACK, DeedState.BACK)
            keys = {_key(deed) for deed in newest.values() if deed.state in backs}
            unhelpful = {key: end for key, end in barred.items() if key in keys}
        return cls(newest, tuple(data["times"]), barred, dict(unhelpful))


def next_deed(
    deeds: Deeds,
    advice: Advice,
    now: float,
    *,
    speed: Speed | None,
    most_per_hour: int,
    kind: Kind = (None, None),
) -> Deed | None:
    """What follows from an advice now; None where nothing has to be done, or not yet."""
    if advice.action is Action.KEEP:
        return None
    last = deeds.newest.get(advice.replica)
    if last is not None and last.state in OPEN:
        return None  # first it is seen what that one did
    on_limits = _on_limits(last, advice)
    if advice.action is Action.TURN_ON and on_limits is None:
        return None  # what others turned off stays off
    deed = Deed(
        advice.replica, advice.action, advice.k, advice.part, now,
        speed=speed, benefit=advice.benefit, on_limits=on_limits,
        engine=kind[0], model=kind[1],
    )  # fmt: skip
    if last is not None and last.words == deed.words:
        if last.state in STANDS:
            return None
        if last.state is DeedState.FAILED and now - last.at < _HOUR_S:
            # The server may have been told although it gave no answer.
            deed = deed.with_limits(last.limits)
    if deeds.barred.get(_key(deed), 0.0) > now:
        return None
    recent = [at for at in deeds.times if at > now - _HOUR_S]
    return deed if len(recent) < most_per_hour else None


def is_undone(deed: Deed, last: Reading | None, parts: Sequence[Benefit]) -> bool:
    """Our server drafts although it was turned off: limits do not outlive it. `parts`: of its
    traffic, as they are now."""
    if last is None or last.engine != OURS or deed.state not in STANDS:
        return False
    if deed.action is Action.TURN_OFF_FOR:
        off = [each for each in parts if each.part in deed.part.split(", ")]
        return any(each.source is Source.CANARY and not each.is_stopped for each in off)
    return deed.action is Action.TURN_OFF and not last.is_stopped


def _on_limits(last: Deed | None, advice: Advice) -> ServerLimits | None:
    """What turning on would restore, where it was us who turned it off."""
    if last is None:
        return None
    if last.action in OFF_ACTIONS and last.state in STANDS:
        return last.on_limits
    is_tried_again = last.action is Action.TURN_ON and last.state is not DeedState.HELPED
    return last.on_limits if is_tried_again and advice.action is Action.TURN_ON else None


def judged(
    deed: Deed, speed: Speed | None, benefit: Benefit | None, now: float, dwell_s: float
) -> tuple[DeedState, str]:
    """DONE: it is too early to say. With the figures."""
    if now - deed.at < dwell_s:
        return DeedState.DONE, ""
    gain = _gain(deed, speed, benefit)
    if gain is not None and gain.change > _CLEAR * gain.error:
        return DeedState.HELPED, gain.words
    if gain is not None and gain.change < -_CLEAR * gain.error:
        return DeedState.TAKEN_BACK, gain.words
    if now - deed.at < _LOOKS * dwell_s:
        return DeedState.DONE, ""
    if gain is None:
        return DeedState.NOT_KNOWN, "nothing was seen under about the same load"
    if gain.goes_on:
        return DeedState.NOT_KNOWN, f"not clear yet: {gain.words}"
    # What is right for a part of the traffic need not show in all of it.
    is_diluted = bool(deed.part) and not gain.part
    state = DeedState.NOT_KNOWN if is_diluted else DeedState.TAKEN_BACK
    return state, f"not clearly better: {gain.words}"


class _Gain(NamedTuple):
    change: float  # the logarithm of how much faster it is now
    error: float
    words: str
    part: str = ""  # of the traffic; empty: all of it
    goes_on: bool = False  # by slices: what is not clear today may be tomorrow


def _gain(deed: Deed, speed: Speed | None, benefit: Benefit | None) -> _Gain | None:
    """None where nothing can be compared."""
    by_slices, by_time = _gain_by_slices(deed, benefit), _gain_over_time(deed, speed, benefit)
    is_clear = by_slices is not None and abs(by_slices.change) > _CLEAR * by_slices.error
    return by_slices if is_clear or by_time is None else by_time


def _gain_by_slices(deed: Deed, benefit: Benefit | None) -> _Gain | None:
    """They go on after it, and compare at any load: with drafts is on, without them off."""
    error = _error(benefit)
    if benefit is None or error is None or benefit.source is not Source.CANARY:
        return None
    change = math.log(benefit.estimate)
    words = f"with drafts {benefit.estimate:.2f} times as fast as without"
    if deed.action in OFF_ACTIONS and benefit.is_stopped:
        return _Gain(-change, error, words, benefit.part, goes_on=True)
    if deed.action is Action.TURN_ON and not benefit.is_stopped:
        return _Gain(change, error, words, benefit.part, goes_on=True)
    return None


def _gain_over_time(deed: Deed, speed: Speed | None, benefit: Benefit | None) -> _Gain | None:
    """Against before it, under about the same load: another one is no comparison."""
    before = deed.benefit
    errors = _error(before), _error(benefit)
    if (
        deed.action not in (Action.TURN_OFF, Action.TURN_ON)
        and before is not None
        and benefit is not None
        and not benefit.is_stopped
        and (before.source, before.part) == (benefit.source, benefit.part)
        and _is_same_load(before.running, benefit.running)
        and errors[0] is not None
        and errors[1] is not None
    ):
        change = math.log(benefit.estimate / before.estimate)
        words = f"net benefit {benefit.estimate:.2f} after {before.estimate:.2f}"
        return _Gain(change, math.hypot(errors[0], errors[1]), words, benefit.part)
    if deed.speed is None or speed is None:
        return None
    if not _is_same_load(deed.speed.running, speed.running):
        return None
    error = math.hypot(deed.speed.error / deed.speed.seconds, speed.error / speed.seconds)
    words = f"{1e3 * speed.seconds:.3g} ms per token after {1e3 * deed.speed.seconds:.3g}"
    return _Gain(math.log(deed.speed.seconds / speed.seconds), error, words)


def _is_same_load(before: float | None, after: float | None) -> bool:
    """By texts at a time; some wobble of very few is none of the load."""
    if before is None or after is None:
        return False
    return _SAME_LOAD[0] <= (after + 0.5) / (before + 0.5) <= _SAME_LOAD[1]


def _error(benefit: Benefit | None) -> float | None:
    """Standard error of its logarithm."""
    if benefit is None or benefit.low is None or benefit.high is None or benefit.low <= 0:
        return None
    return (math.log(benefit.high) - math.log(benefit.low)) / (2 * _CLEAR)


def _key(deed: Deed) -> str:
    return f"{deed.replica} {deed.words}"


def _until(bars: Mapping[str, float], now: float) -> dict[str, float]:
    return {key: end for key, end in bars.items() if end > now}

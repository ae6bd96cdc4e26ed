"""What to do about speculation now, and what it costs not to. Pure.

An advice changes rarely: another one must be clearly right, by an interval that does not hold 1,
for a whole dwell time. `AdviceState` is a value: the state before and what is seen now give the
state after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from outdraft.observe.reading import TEMPERATURE, Growth
from outdraft.watch.findings import Action, Advice, Benefit
from outdraft.watch.weighing import Worth

DWELL_S = 600.0
FIRST_DWELL_S = 20.0
_GRACE, _MISSED_LOOKS = 0.25, 2.5  # of the dwell time, and of the time between two looks
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Seen:
    """Of one replica or of all of them, in the window."""

    benefit: Benefit | None
    parts: tuple[Benefit, ...] = ()  # of parts of the traffic
    by_k: Mapping[int, Benefit] = field(default_factory=dict)  # what other draft lengths would give
    tokens_per_s: float | None = None
    busy_servers: float = 1.0  # servers that were computing, on average
    speculates: bool = True
    is_stopped: bool = False  # it was turned off while the server runs

    @classmethod
    def of(cls, worth: Worth, windows: Iterable[Growth], **more: bool) -> Seen:
        every = list(windows)
        rates = [rate for each in every if (rate := each.per_second("num_tokens")) is not None]
        busy = sum(min(each.gauge("running_requests") or 0.0, 1.0) for each in every)
        tokens_per_s = sum(rates) if rates else None
        return cls(worth.benefit, worth.parts, worth.by_k, tokens_per_s, busy, **more)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is clearly right now, without regard to what stands."""

    action: Action
    reason: str
    k: int | None = None
    part: str = ""
    # Speed if it is followed over speed if not; None: how much of the traffic it is about is not
    # known.
    gain: float | None = 1.0


@dataclass(frozen=True, slots=True)
class AdviceState:
    standing: Advice | None = None
    candidate: Wanted | None = None
    since: float = 0.0  # of the candidate
    last_seen: float = 0.0  # when the candidate was last clearly right


@dataclass(frozen=True, slots=True)
class AdviceRules:
    dwell_s: float = DWELL_S
    first_dwell_s: float = FIRST_DWELL_S
    gpu_hour_cost: float | None = None
    apart_s: float = 10.0  # between two looks, at most

    @property
    def grace_s(self) -> float:
        """How long a candidate stays without a clear answer."""
        return max(_GRACE * self.dwell_s, _MISSED_LOOKS * self.apart_s)


def advise(
    state: AdviceState, seen: Seen, now: float, replica: str, rules: AdviceRules
) -> AdviceState:
    """The standing advice always shows the figures of now."""
    if not seen.speculates:
        return AdviceState()  # nothing is left to be followed, or kept
    wanted = wanted_of(seen, state.standing)
    standing = state.standing
    if wanted is not None and standing is not None and _is_same(wanted, standing):
        shown = _advice(wanted, seen, replica, standing.since, rules)
        return AdviceState(shown)
    dwell_s = rules.first_dwell_s if standing is None else rules.dwell_s
    if wanted is not None and standing is not None and _means_the_same(wanted, standing):
        dwell_s = 0.0
    state = _with_candidate(state, wanted, now, rules.grace_s)
    if state.candidate is None or wanted is None or now - state.since < dwell_s:
        return replace(state, standing=standing and _unclear(standing, seen))
    return AdviceState(_advice(wanted, seen, replica, now, rules))


def unheard(state: AdviceState) -> AdviceState:
    """Where nothing at all was seen in the window: what stands is not forgotten, a server may come
    back, but it has no figures of now."""
    standing = state.standing
    why = "nobody answered in the window; it stands since before"
    return replace(state, standing=standing and _without_figures(standing, why, None))


def wanted_of(seen: Seen, standing: Advice | None = None) -> Wanted | None:
    """None: it is not clear."""
    benefit = seen.benefit
    if seen.is_stopped:
        return _wanted_while_stopped(benefit)
    losing = _losing(seen.parts, standing)
    if losing:
        worst = min(losing, key=lambda part: part.estimate)
        parts = ", ".join(part.part for part in losing)
        if standing and standing.part and _parts(standing.part) <= {part.part for part in losing}:
            parts = standing.part  # another part that comes and goes is no new advice
        reason = f"{worst.part}: {_times(worst)}; elsewhere it pays"
        meant = [part for part in losing if part.part in _parts(parts)]
        return Wanted(Action.TURN_OFF_FOR, reason, part=parts, gain=_gain_of_parts(meant))
    stopped = [part for part in seen.parts if part.is_stopped]
    back = [part for part in stopped if part.is_gain]
    if back and not any(part.is_loss for part in stopped):
        best = max(back, key=lambda part: part.estimate)
        parts = ", ".join(part.part for part in back)
        reason = f"{best.part}: turned off, drafts would make it {_times(best)}"
        return Wanted(Action.TURN_ON, reason, part=parts, gain=_gain_of_parts(back, is_on=True))
    if standing is not None and any(part.part in _parts(standing.part) for part in stopped):
        return None  # off, and not clear yet whether it should be on
    if benefit is None or benefit.low is None or benefit.high is None:
        return None
    shorter = _shorter(seen, standing)
    if shorter is not None:
        k, gain = shorter
        now, then = seen.by_k[max(seen.by_k)], seen.by_k[k]
        reason = f"k = {k} would give {_times(then)}, now it is {_times(now)}"
        return Wanted(Action.LOWER_K, reason, k=k, gain=gain)
    if benefit.is_loss:
        return Wanted(Action.TURN_OFF, _times(benefit), gain=1 / benefit.estimate)
    if benefit.is_gain:
        return Wanted(Action.KEEP, _times(benefit), gain=benefit.estimate)
    return None


def _losing(parts: Sequence[Benefit], standing: Advice | None) -> list[Benefit]:
    """Parts of one kind, loads or temperatures, that lose while others gain. Where both kinds have
    such: the one that stands, else the one that gains more."""
    of_kind = {
        kind: [part for part in parts if part.part.startswith(TEMPERATURE) == kind]
        for kind in (False, True)
    }
    found = {
        kind: [part for part in each if part.is_loss]
        for kind, each in of_kind.items()
        if any(part.is_gain for part in each) and any(part.is_loss for part in each)
    }
    if not found:
        return []
    if standing is not None and standing.action is Action.TURN_OFF_FOR:
        kept = standing.part.startswith(TEMPERATURE)
        if kept in found:
            return found[kept]
    return max(found.values(), key=lambda each: _gain_of_parts(each) or 0.0)


def _wanted_while_stopped(benefit: Benefit | None) -> Wanted | None:
    """By slices that have drafts. What it costs to leave it off is nothing where it should be."""
    if benefit is None or not (benefit.is_gain or benefit.is_loss):
        return None
    reason = f"turned off, drafts would make it {_times(benefit)}"
    if benefit.is_gain:
        return Wanted(Action.TURN_ON, reason, gain=benefit.estimate)
    return Wanted(Action.TURN_OFF, reason, gain=None)


def _gain_of_parts(parts: Sequence[Benefit], *, is_on: bool = False) -> float | None:
    """Of all the traffic, when these parts of it are written without speculation, or with it."""
    gain = 1.0
    for part in parts:
        if part.share is None:
            return None
        gain += part.share * ((part.estimate if is_on else 1 / part.estimate) - 1)
    return gain


def _parts(words: str) -> set[str]:
    return set(words.split(", "))


def _unclear(standing: Advice, seen: Seen) -> Advice:
    """What stands, while nothing says it anew: with the benefit of now, and no costs of then."""
    now = "nothing" if seen.benefit is None else _times(seen.benefit)
    return _without_figures(
        standing, f"not clear now ({now}); it stands since it was", seen.benefit
    )


def _without_figures(standing: Advice, reason: str, benefit: Benefit | None) -> Advice:
    return replace(
        standing,
        reason=reason,
        benefit=benefit,
        lost_tokens_per_hour=None,
        lost_gpu_seconds_per_hour=None,
        lost_money_per_hour=None,
    )


def _shorter(seen: Seen, standing: Advice | None) -> tuple[int, float] | None:
    """A shorter draft that pays, and is clearly better than the present one: (k, how much)."""
    if len(seen.by_k) < 2:
        return None
    now = seen.by_k[max(seen.by_k)]
    better = {
        k: each
        for k, each in seen.by_k.items()
        if each.is_gain and each.low is not None and now.high is not None and each.low > now.high
    }
    if not better:
        return None
    best = max(better, key=lambda k: better[k].estimate)
    if standing is not None and standing.k in better:
        kept, low = better[standing.k], better[best].low
        if kept.high is None or low is None or low <= kept.high:
            best = standing.k  # two that cannot be told apart are no new advice
    return best, better[best].estimate / now.estimate


def _is_same(wanted: Wanted, standing: Advice) -> bool:
    what = standing.action, standing.k, standing.part
    return (wanted.action, wanted.k, wanted.part) == what


def _means_the_same(wanted: Wanted, standing: Advice) -> bool:
    """That drafts pay: somebody only turned them on meanwhile, or off."""
    both = {wanted.action, standing.action}
    return both == {Action.KEEP, Action.TURN_ON} and not (wanted.part or standing.part)


def _with_candidate(
    state: AdviceState, wanted: Wanted | None, now: float, grace_s: float
) -> AdviceState:
    """A candidate stays while its action is clearly right; details may change meanwhile. It goes
    when another one is right, what stands is, or nothing was clear for too long."""
    known = state.candidate
    if wanted is None:
        is_over = known is not None and now - state.last_seen > grace_s
        return replace(state, candidate=None) if is_over else state
    if known is None or known.action is not wanted.action or now - state.last_seen > grace_s:
        return replace(state, candidate=wanted, since=now, last_seen=now)
    return replace(state, candidate=wanted, last_seen=now)


def _advice(wanted: Wanted, seen: Seen, replica: str, since: float, rules: AdviceRules) -> Advice:
    tokens_per_hour = _HOUR_S * (seen.tokens_per_s or 0.0)
    gain = max(1.0 if wanted.gain is None else wanted.gain, 1e-9)
    if wanted.action is Action.KEEP:  # not following it is turning speculation off
        tokens = tokens_per_hour * (1 - 1 / gain)
        seconds = _HOUR_S * seen.busy_servers * (gain - 1)
    else:
        tokens = tokens_per_hour * (gain - 1)
        seconds = _HOUR_S * seen.busy_servers * (1 - 1 / gain)
    cost = rules.gpu_hour_cost
    return Advice(
        wanted.action,
        replica,
        since,
        wanted.reason,
        wanted.k,
        wanted.part,
        seen.benefit,
        None if seen.tokens_per_s is None or wanted.gain is None else tokens,
        None if wanted.gain is None else seconds,
        None if cost is None or wanted.gain is None else seconds / _HOUR_S * cost,
    )


def _times(benefit: Benefit) -> str:
    interval = "" if benefit.low is None else f" ({benefit.low:.2f} to {benefit.high:.2f})"
    about = ""
    if benefit.share is not None and not benefit.part:
        about = f", in {benefit.share:.0%} of the time of texts"
    return (
        f"{benefit.estimate:.2f} times as fast as without{interval}, {benefit.source.words}{about}"
    )

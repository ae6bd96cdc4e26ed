"""Servers that draft nothing, whose tails widen, whose cache is full. Pure."""

from __future__ import annotations

import numpy as np

from outdraft.watch.alarms.past import HOUR, MINUTE, Past
from outdraft.watch.alarms.robust import median_of, usual_of
from outdraft.watch.alarms.tails import TAIL_S, in_words, tail_of, tails_of

_UNDRAFTED_S = 10 * MINUTE
_UNDRAFTED_REQUESTS, _UNDRAFTED_TOKENS = 20.0, 1000.0
_DRAFTED = 0.01  # rounds with a draft for each token; fewer are none
_MORE_REQUESTS = 1.2  # without drafts texts take longer, and more of them run at a time

_TAIL_BLOCKS = 6
_TAIL_RATIO = {"tpot": 1.7, "e2e": 2.2}  # e2e also has the lengths of answers in it
_TAIL_SLOWER = 1.5
_TAIL_CLEAR = 5.0
_LOAD_DIFFERS = 2.0
_CAME_ON_RATIO = 1.4  # of P99 / P50, against the time before speculation
_CAME_ON_SLOWER = 1.2  # of P99: a P50 that fell widens no tail

_FULL, _FULL_S = 0.93, 6 * MINUTE
_PREEMPTIONS, _WAITING = 3.0, 1.0


def nothing_proposed(past: Past, now: float) -> str | None:
    """No draft at all, and not because the load is one at which drafts are switched off."""
    rows = past.minutes.between(now - _UNDRAFTED_S, now)
    tokens, requests = rows.sum("tokens"), rows.sum("requests")
    is_busy = requests >= _UNDRAFTED_REQUESTS and tokens >= _UNDRAFTED_TOKENS
    is_busy = is_busy and rows.sum("seconds") >= _UNDRAFTED_S / 2
    if past.is_off_on_purpose or not is_busy or not rows["speculates"].all():
        return None
    if rows.sum("drafts") > _DRAFTED * tokens:
        return None
    before = past.tens.between(0.0, now - _UNDRAFTED_S)
    drafted = before.where(before["drafts"] > _DRAFTED * np.maximum(before["tokens"], 1.0))
    running = rows.mean("running")
    if len(drafted):  # a schedule may be off at so many requests, if there never were as many
        rates = drafted["requests"] / np.maximum(drafted["seconds"], 1.0)
        rate = _MORE_REQUESTS * requests / max(rows.sum("seconds"), 1.0)
        if float(drafted["running"].max()) < running and float(rates.max()) < rate:
            return None
    return (
        f"{tokens:.0f} tokens in {requests:.0f} requests within {_UNDRAFTED_S / MINUTE:.0f} "
        f"minutes, {rows.sum('drafts'):.0f} drafts, with {running:.1f} requests at a time"
    )


def tail_widened(past: Past, now: float) -> str | None:
    return _tail_widened(past, now, "tpot") or _tail_widened(past, now, "e2e")


def _tail_widened(past: Past, now: float, name: str) -> str | None:
    """The last two half hours against half hours of the past with a similar load."""
    newest = tail_of(past.minutes.between(now - TAIL_S, now), name)
    earlier = tail_of(past.minutes.between(now - 2 * TAIL_S, now - TAIL_S), name)
    if newest is None or earlier is None:
        return None
    found = tails_of(past.tens.between(0.0, now - 2 * TAIL_S), name)
    load = (found[2] + 0.5) / (newest.running + 0.5)
    p50, p99, _ = found[:, (load >= 1 / _LOAD_DIFFERS) & (load <= _LOAD_DIFFERS)]
    usual = usual_of(p99 / p50)
    if usual is None or usual.num_rows < _TAIL_BLOCKS:
        return None
    usual_p99 = median_of(p99)
    limit = max(_TAIL_RATIO[name] * usual.median, usual.median + _TAIL_CLEAR * usual.sigma)
    is_wide = all(tail.sure_p99 > limit * tail.p50 for tail in (newest, earlier))
    is_slow = all(tail.sure_p99 > _TAIL_SLOWER * usual_p99 for tail in (newest, earlier))
    if not (is_wide and is_slow):
        return None
    return (
        f"{newest.words(name)}, usual at this load is {usual.median:.1f} times "
        f"(P99 {in_words(usual_p99)})"
    )


def tail_after_coming_on(past: Past, now: float) -> str | None:
    """Half an hour and more with speculation against the time before it came on."""
    speculates = past.tens["speculates"]
    came_on = np.flatnonzero((speculates[1:] > 0) & (speculates[:-1] == 0))
    if not len(came_on):
        return None
    at = float(past.tens["end"][came_on[-1]])
    if not now - 24 * HOUR <= at <= now - TAIL_S:
        return None
    plain = past.tens.between(at - 6 * HOUR, at)
    before = tail_of(plain.where(plain["speculates"] == 0), "tpot")
    after = tail_of(past.minutes.between(max(at, now - HOUR), now), "tpot")
    if before is None or after is None or after.running > _LOAD_DIFFERS * (before.running + 0.5):
        return None
    limit = max(_CAME_ON_RATIO * before.gap * after.p50, _CAME_ON_SLOWER * before.p99)
    if after.sure_p99 <= limit:
        return None
    return (
        f"{after.words('tpot')}; before speculation came on it was {before.gap:.1f} times "
        f"(P99 {in_words(before.p99)})"
    )


def kv_squeeze(past: Past, now: float) -> str | None:
    rows = past.minutes.between(now - _FULL_S, now)
    if rows.sum("seconds") < 0.8 * _FULL_S or rows.mean("kv_usage") < _FULL:
        return None
    preempted, waiting = rows.sum("preemptions"), rows.mean("waiting")
    usual = past.tens.between(0.0, now - _FULL_S)["waiting"]
    is_queueing = waiting >= _WAITING and (
        not len(usual) or waiting > 2 * median_of(usual) + _WAITING
    )
    if preempted < _PREEMPTIONS and not is_queueing:
        return None
    return (
        f"{rows.mean('kv_usage'):.0%} of the KV cache in use over {_FULL_S / MINUTE:.0f} minutes, "
        f"{preempted:.0f} requests preempted, {waiting:.1f} waiting beside "
        f"{rows.mean('running'):.1f} running"
    )

"""A step after somebody deployed something: another version or model. Pure."""

from __future__ import annotations

import numpy as np

from outdraft.watch.alarms.past import HOUR, MINUTE, Floats, Past, Rows
from outdraft.watch.alarms.robust import Usual, accepted_of, median_of, token_pace, usual_of
from outdraft.watch.history import Change

_AFTER_S = 10 * MINUTE  # of data with the new one, at least
_SETTLES_S = 2 * MINUTE  # a server that was just started is slow for a moment
_LOOKED_AT_S = 3 * HOUR
_REQUESTS = 60.0
_CLEAR = 3.0  # one moment is looked at, not every minute of a day
_ROWS, _ROW_REQUESTS = 3, 10.0
_LESS_ACCEPTED = 0.75
_SLOWER = 1.35
_SAME_LOAD = (0.6, 1.6)


def deployment_step(past: Past, now: float) -> str | None:
    """The newest change, for some hours after it."""
    change = max(past.changes, key=lambda each: each.at, default=None)
    if change is None or not change.at + _AFTER_S <= now <= change.at + _LOOKED_AT_S:
        return None
    after = past.minutes.between(change.at + _SETTLES_S, now)
    if after.sum("requests") < _REQUESTS:
        return None
    before = past.tens.between(change.at - 24 * HOUR, change.at)
    before = before.where(before["requests"] >= _ROW_REQUESTS)
    if len(before) < _ROWS:
        return None
    words = f"{change.what} {change.before} → {change.after}"
    # Who chooses how to draft may choose otherwise since, on purpose.
    less = None if past.drafts_as_it_pays else _less_accepted(before, after, change)
    step = less or _slower(before, after, change)
    return None if step is None else f"{words}: {step}"


def _less_accepted(before: Rows, after: Rows, change: Change) -> str | None:
    found = accepted_of(after)
    usual = _lowest_usual(before, "accepted", "draft_tokens", change)
    if found is None or usual is None:
        return None
    if found.rate + _CLEAR * found.error >= _LESS_ACCEPTED * usual:
        return None
    return (
        f"accepted {found.rate:.0%} of draft tokens in {found.requests:.0f} requests since, "
        f"{usual:.0%} before"
    )


def _slower(before: Rows, after: Rows, change: Change) -> str | None:
    """Seconds per token, where the load is about the same."""
    found = token_pace(after)
    if found is None:
        return None
    tokens = before["tokens"] / np.maximum(before["seconds"], 1.0) / found.tokens_per_s
    usual = _usual_pace(before, tokens)
    if usual is None:  # it may be so slow that it never wrote as little before
        usual = _usual_pace(before, (before["running"] + 0.5) / (found.running + 0.5))
    if usual is None:
        return None
    limit = max(_SLOWER * usual.median, 1.1 * usual.high)
    if found.seconds - _CLEAR * found.error <= limit:
        return None
    return (
        f"{1e3 * found.seconds:.3g} ms per token in {found.requests:.0f} requests since, "
        f"{1e3 * usual.median:.3g} ms before at this load"
    )


def _usual_pace(rows: Rows, load: Floats) -> Usual | None:
    """Where the load was about the same: `load` is that of each row over that of now."""
    is_near = (load >= _SAME_LOAD[0]) & (load <= _SAME_LOAD[1]) & (rows["decode_tokens"] > 0)
    rows = rows.where(is_near)
    usual = usual_of(rows["decode_seconds"] / rows["decode_tokens"])
    return usual if usual and usual.num_rows >= _ROWS else None


def _lowest_usual(rows: Rows, top: str, bottom: str, change: Change) -> float | None:
    """Of the last three hours or of the day before, whichever is lower: a change of traffic
    must not look like one of the deployment."""
    rows = rows.where(rows[bottom] > 0)
    recent = rows.between(change.at - 3 * HOUR, change.at)
    medians = [median_of(part[top] / part[bottom]) for part in (rows, recent) if len(part) >= _ROWS]
    return min(medians, default=None)

"""Drafts that are accepted less than they should be. Pure: what a replica did → evidence, or None.

Which prompts come, and at which temperature, moves acceptance by a fifth from hour to hour. So a
fall counts when it is larger than that and clear of its error, never for being significant alone.
"""

from __future__ import annotations

import numpy as np

from outdraft.watch.alarms.past import HOUR, MINUTE, Past, Rows
from outdraft.watch.alarms.robust import Accepted, Usual, accepted_of, median_of, usual_rate

_CLEAR = 4.0  # standard errors
_FEW_REQUESTS = 40.0  # fewer say nothing of the traffic
_ROW_REQUESTS = 10.0  # of ten minutes that count as usual

_WORTHLESS_LENGTH = 1.2
_WORTHLESS_S = 15 * MINUTE

_COLLAPSE_WINDOWS = (5, 10, 20, 30)  # minutes; the longer ones are for little traffic
_COLLAPSE_RATIO = 0.6
_COLLAPSE_ROWS = 3
_DAY = 24 * HOUR

_DECAY_RATIO, _DECAY_BEFORE = 0.70, 0.88
_DECAY_ROWS = 24  # four hours of usual
_DECAY_OLD_S = 3 * HOUR  # what is younger may be part of the decay
_DECAY_REQUESTS = 100.0
_DECAY_CLEAR = 3.0  # an hour is a long time to be low by chance

_LONG_RATIO, _LONG_TIMES = 0.55, 2.5
_LONG_ROWS, _LONG_S = 5, 4 * HOUR
_LONG_REQUESTS = 2.0  # of a minute


def drafts_worthless(past: Past, now: float) -> str | None:
    found = _enough(past.minutes.between(now - _WORTHLESS_S, now), _FEW_REQUESTS)
    if found is None or found.length + _CLEAR * found.length_error >= _WORTHLESS_LENGTH:
        return None
    return (
        f"a round gave {found.length:.2f} tokens in {_minutes(_WORTHLESS_S)} "
        f"({found.requests:.0f} requests); without a draft it gives 1"
    )


def acceptance_collapsed(past: Past, now: float) -> str | None:
    for window in _COLLAPSE_WINDOWS:
        start = now - window * MINUTE
        found = _enough(past.minutes.between(start, now), _FEW_REQUESTS)
        if found is None:
            continue
        usual = _usual(past, start - 15 * MINUTE, found.mean_k, _COLLAPSE_ROWS)
        if usual and found.rate + _CLEAR * found.error < _COLLAPSE_RATIO * usual.median:
            return _fell(found, usual, window * MINUTE)
    return None


def acceptance_decays(past: Past, now: float) -> str | None:
    found = _enough(past.minutes.between(now - HOUR, now), _DECAY_REQUESTS)
    before = _enough(past.tens.between(now - 2.2 * HOUR, now - HOUR), _FEW_REQUESTS)
    if found is None or before is None:
        return None
    usual = _usual(past, now - _DECAY_OLD_S, found.mean_k, _DECAY_ROWS, 2 * _DAY)
    if usual is None or before.rate > _DECAY_BEFORE * usual.median:
        return None
    if found.rate + _DECAY_CLEAR * found.error >= _DECAY_RATIO * usual.median:
        return None
    return None if found.rate >= usual.low else _fell(found, usual, HOUR)


def long_texts_collapse(past: Past, now: float) -> str | None:
    """Minutes whose texts were long against minutes whose texts were short, of the last hours."""
    rows = past.minutes.between(now - _LONG_S, now)
    rows = rows.where((rows["requests"] >= _LONG_REQUESTS) & (rows["draft_tokens"] > 0))
    if len(rows) < 4 * _LONG_ROWS:
        return None
    tokens = (rows["prompt_tokens"] + rows["tokens"]) / rows["requests"]
    usual = median_of(tokens)
    is_long = tokens > _LONG_TIMES * usual
    if int(is_long.sum()) < _LONG_ROWS:
        return None
    long, short = accepted_of(rows.where(is_long)), accepted_of(rows.where(tokens <= usual))
    if long is None or short is None or long.requests < _FEW_REQUESTS:
        return None
    rates = rows["accepted"] / rows["draft_tokens"]
    error = (long.error**2 + short.error**2) ** 0.5
    highest, lowest = np.quantile(rates[is_long], 0.9), np.quantile(rates[tokens <= usual], 0.1)
    if highest >= lowest or long.rate + _CLEAR * error >= _LONG_RATIO * short.rate:
        return None
    return (
        f"accepted {long.rate:.0%} of draft tokens in {int(is_long.sum())} minutes with texts of "
        f"{median_of(tokens[is_long]):.0f} tokens, {short.rate:.0%} in those with up to "
        f"{usual:.0f}"
    )


def _enough(rows: Rows, min_requests: float) -> Accepted | None:
    found = accepted_of(rows)
    return found if found and found.requests >= min_requests else None


def _usual(past: Past, end: float, k: float, min_rows: int, length_s: float = _DAY) -> Usual | None:
    """What was accepted before `end`, while texts were drafted about as far ahead as now."""
    rows = past.tens.between(end - length_s, end)
    usual = usual_rate(rows, k, min_requests=_ROW_REQUESTS)
    return usual if usual and usual.num_rows >= min_rows else None


def _fell(found: Accepted, usual: Usual, seconds: float) -> str:
    return (
        f"accepted {found.rate:.0%} of draft tokens in {_minutes(seconds)} "
        f"({found.requests:.0f} requests, ± {2 * found.error:.0%}); usual here is "
        f"{usual.median:.0%} ({usual.low:.0%} to {usual.high:.0%})"
    )


def _minutes(seconds: float) -> str:
    return f"{seconds / MINUTE:.0f} minutes"

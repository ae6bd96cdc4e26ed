"""A replica that behaves unlike its fellows: each against the others of its model, engine and
method. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from outdraft.watch.alarms.past import MINUTE, Floats, Past, Rows
from outdraft.watch.alarms.robust import Accepted, TokenPace, accepted_of, token_pace, usual_of

_WINDOW_S = 30 * MINUTE
_FELLOWS = 2  # others; with one other nobody knows which of the two is odd
_REQUESTS = 100.0
_CLEAR = 4.0
_LESS_ACCEPTED, _SLOWER = 0.75, 1.4
_SPREAD = 0.05  # of the median: balancers never share traffic out evenly
_K_DIFFERS = 0.25


def unlike_fellows(pasts: Mapping[str, Past], now: float) -> dict[str, str]:
    """Evidence by replica."""
    windows = {name: past.minutes.between(now - _WINDOW_S, now) for name, past in pasts.items()}
    busy = {name: rows for name, rows in windows.items() if rows.sum("requests") >= _REQUESTS}
    rates = {name: rate for name, rows in busy.items() if (rate := accepted_of(rows))}
    paces = {name: pace for name, rows in busy.items() if (pace := token_pace(rows))}
    found: dict[str, str] = {}
    for name in busy:
        fellows = [
            other
            for other in busy
            if other != name
            and pasts[name].model is not None  # two that are unknown may be a small and a large one
            and pasts[other].model == pasts[name].model
            and pasts[other].engine == pasts[name].engine
            and pasts[other].method == pasts[name].method
            and _speculates(busy[other]) == _speculates(busy[name])
        ]
        # Two that choose how to draft may do so differently, each as it pays there.
        chooses = pasts[name].drafts_as_it_pays
        less = None if chooses else _less_accepted(name, fellows, rates)
        evidence = less or _slower(name, fellows, paces)
        if evidence is not None:
            found[name] = evidence
    return found


def _less_accepted(name: str, fellows: list[str], rates: Mapping[str, Accepted]) -> str | None:
    mine = rates.get(name)
    if mine is None:
        return None
    others = [
        rates[other]
        for other in fellows
        if other in rates and abs(rates[other].mean_k - mine.mean_k) <= _K_DIFFERS * mine.mean_k
    ]
    if len(others) < _FELLOWS:
        return None
    values = np.array([other.rate for other in others])
    median, error = _middle(values, [other.error for other in others], mine.error)
    if mine.rate >= _LESS_ACCEPTED * median or median - mine.rate <= _CLEAR * error:
        return None
    return (
        f"accepted {mine.rate:.0%} of draft tokens in {_WINDOW_S / MINUTE:.0f} minutes, its "
        f"{len(others)} fellows {values.min():.0%} to {values.max():.0%}"
    )


def _slower(name: str, fellows: list[str], paces: Mapping[str, TokenPace]) -> str | None:
    mine = paces.get(name)
    if mine is None:
        return None
    others = [
        paces[other] for other in fellows if other in paces and mine.is_under_load_of(paces[other])
    ]
    if len(others) < _FELLOWS:
        return None
    values = np.array([other.seconds for other in others])
    median, error = _middle(values, [other.error for other in others], mine.error)
    if mine.seconds <= _SLOWER * median or mine.seconds - median <= _CLEAR * error:
        return None
    return (
        f"{1e3 * mine.seconds:.3g} ms per token in {_WINDOW_S / MINUTE:.0f} minutes, its "
        f"{len(others)} fellows at this load {1e3 * values.min():.3g} to "
        f"{1e3 * values.max():.3g} ms"
    )


def _middle(values: Floats, errors: list[float], own: float) -> tuple[float, float]:
    """The others' median, and the error of a difference from it: theirs, one's own, and what
    they differ by."""
    usual = usual_of(values)
    if usual is None:
        raise ValueError("nobody to compare with")
    spread = max(_SPREAD * usual.median, usual.sigma)
    of_median = sum(error**2 for error in errors) / len(errors) ** 2
    return usual.median, (own**2 + of_median + spread**2) ** 0.5


def _speculates(rows: Rows) -> bool:
    return bool(rows["speculates"].any())

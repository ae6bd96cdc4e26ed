"""Limits of an operator: where they stop drafts, and what a canary tries there."""

from __future__ import annotations

import pytest

from outdraft.engine.draft_lengths import NO_LIMITS, Limits
from outdraft.speculation import OFF, Schedule, Speculation

NGRAM = Speculation("ngram", k=5, schedule=((1, 8, 5), (9, 99, 0)))
STOP: Schedule = ((1, 99, 0),)
BY_LOAD: Schedule = ((1, 3, 2), (4, 99, 0))


def test_without_limits_any_length_is_allowed() -> None:
    assert NO_LIMITS.k_at(1) == 64
    assert not NO_LIMITS.stops_all
    assert not NO_LIMITS.stops(NGRAM, 1)


@pytest.mark.parametrize(
    ("speculation", "running", "stops"),
    [
        (NGRAM, 3, False),
        (NGRAM, 4, True),
        (NGRAM, 9, False),  # its own schedule drafts nothing there
        (OFF, 4, False),
        (Speculation("ngram", rule="typical"), 4, False),  # texts would change
    ],
)
def test_where_limits_alone_keep_drafts_away(
    speculation: Speculation, running: int, stops: bool
) -> None:
    assert Limits(BY_LOAD).stops(speculation, running) == stops
    assert not Limits(BY_LOAD).stops_all


def test_a_canary_tries_what_was_allowed_before() -> None:
    stopped = NO_LIMITS.followed_by(STOP)
    assert stopped.stops_all
    assert [stopped.k_at(1), stopped.lifted(1).k_at(1)] == [0, 64]
    stopped = Limits(((1, 99, 3),)).followed_by(STOP).followed_by(STOP)
    assert stopped.lifted(1).k_at(1) == 3
    stopped = Limits(BY_LOAD).followed_by(STOP)
    assert [stopped.lifted(n).k_at(n) for n in (3, 4)] == [2, 64]
    assert stopped.followed_by(()).k_at(1) == 64

"""Limits of an operator: where they stop drafts, and what a canary tries there."""

from __future__ import annotations

import math

import pytest

from outdraft.engine.draft_lengths import (
    EVERYBODY,
    NO_LIMITS,
    Limits,
    Temperatures,
    draft_lengths,
)
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.engine.step import Segment
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


def test_limits_by_temperature() -> None:
    limits = Limits(BY_LOAD).followed_by((), ((0.7, 1.0), (1.0, math.inf)))
    assert [limits.stops_at(t) for t in (0.0, 0.7, 0.8, 1.0, 1.1)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert not limits.stops_all
    assert not limits.stops(NGRAM, 1)
    assert limits.stopped(NGRAM, 1, (0.0, 0.8)) == (False, True)
    assert limits.stopped(NGRAM, 9, (0.0, 0.8)) == (False, False)  # its own schedule is off there
    assert limits.stopped(Speculation("ngram", rule="typical"), 1, (0.0, 0.8)) == (False, False)
    assert Limits(STOP).stopped(NGRAM, 1, (0.0, 0.8)) == (True, True)


def segment(temperature: float, k: int | None = None) -> Segment:
    params = SamplingParams(temperature=temperature)
    text = Sequence(0, "a", 0, [1, 2, 3], 2, params, 0, frozenset(), max_draft_tokens=k)
    text.num_computed = 2
    return Segment(text, 1)


@pytest.mark.parametrize(
    ("limits", "inverted", "lengths"),
    [
        (NO_LIMITS, None, [5, 5, 3]),
        (NO_LIMITS, EVERYBODY, [0, 0, 0]),
        (NO_LIMITS, (0.7, 1.0), [5, 0, 3]),
        (NO_LIMITS, (0.3, 0.7), [5, 5, 3]),
        (Limits(temperatures=((0.7, 1.0),)), None, [5, 0, 3]),
        (Limits(temperatures=((0.7, 1.0),)), EVERYBODY, [0, 0, 0]),
        (Limits(temperatures=((0.7, 1.0),)), (0.7, 1.0), [5, 5, 3]),
        (Limits(temperatures=((0.7, 1.0),)), (-math.inf, 0.0), [0, 0, 3]),
        (Limits(STOP), None, [0, 0, 0]),
        (Limits(STOP), EVERYBODY, [5, 5, 3]),
        (Limits(STOP), (0.7, 1.0), [0, 0, 0]),
        (Limits(STOP, temperatures=((0.7, 1.0),)), EVERYBODY, [5, 0, 3]),
    ],
)
def test_texts_of_some_temperatures(
    limits: Limits, inverted: Temperatures | None, lengths: list[int]
) -> None:
    texts = [segment(0.0), segment(0.8), segment(2.0, k=3)]
    assert draft_lengths(NGRAM, 2, limits, texts, inverted) == lengths


def test_what_changes_texts_is_not_tried() -> None:
    lossy = Speculation("ngram", rule="typical")
    limits = Limits(temperatures=((0.7, 1.0),))
    assert draft_lengths(lossy, 1, limits, [segment(0.8)], (0.7, 1.0)) == [0]

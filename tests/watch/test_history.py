"""Growths kept for two days in flat memory."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.acceptance import Acceptance
from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import Growth, Reading, reading_of
from outdraft.watch.history import Change, Histories, History
from outdraft.watch.history_json import (
    HistoryWriter,
    compact,
    history_from_json,
    history_to_json,
)
from outdraft.watch.scraper import Unreadable

BOUNDS = (0.1, 0.5, float("inf"))


def reading_at(at: float, tokens: float | None = None, **parts: Any) -> Reading:
    """A server that writes 10 tokens a second with 4 requests at a time, since 0."""
    tokens = 10 * at if tokens is None else tokens
    reading = Reading(
        at,
        "vllm",
        {"num_tokens": tokens, "num_requests": tokens / 100, "decode_tokens": tokens},
        {"running_requests": 4.0, "kv_cache_usage": 0.5},
        {"ttft": Histogram(BOUNDS, (tokens, tokens / 2, 0.0), tokens / 10)},
        Acceptance(int(tokens), 2 * int(tokens), int(tokens), 0, [int(tokens)]),
        model="m",
    )
    return replace(reading, **parts)


def watched(seconds: float, interval_s: float = 5.0, start: float = 0.0) -> History:
    history = History(interval_s)
    for step in range(int(seconds / interval_s) + 1):
        history.add(reading_at(start + step * interval_s))
    return history


def test_the_first_look_is_the_beginning() -> None:
    history = History(5.0)
    assert history.add(reading_at(100.0)) is None
    assert history.window(600, 100.0) is None
    assert history.started_at is None
    grown = history.add(reading_at(105.0))
    assert grown is not None
    assert grown.counters["num_tokens"] == 50
    assert history.window(600, 105.0) == grown
    assert history.started_at == 100


def test_fine_growths_minutes_and_tens() -> None:
    history = watched(3 * 3600)
    assert len(history.fine) == 121
    assert history.fine[0].end == 3 * 3600 - 600
    assert len(history.minutes) == 3 * 60
    assert len(history.tens) == 3 * 6
    assert {round(each.seconds) for each in list(history.minutes)[1:]} == {60}
    assert {round(each.seconds) for each in list(history.tens)[1:]} == {600}
    assert {each.counters["num_tokens"] for each in list(history.tens)[1:]} == {6000}
    assert history.tens[3].gauge("running_requests") == 4


@pytest.mark.parametrize("seconds", [5, 30, 60, 300, 599, 600, 601, 1800, 3600, 2.5 * 3600])
def test_a_window_is_as_long_as_asked_for(seconds: float) -> None:
    now = 3 * 3600.0
    window = watched(now).window(seconds, now)
    assert window is not None
    assert window.end == now
    assert window.gap_s == 0, "its parts touch"
    exact = seconds <= 600
    assert window.seconds == pytest.approx(seconds, abs=2.5 if exact else 60)
    assert window.counters["num_tokens"] == pytest.approx(10 * window.seconds)
    assert window.gauge("kv_cache_usage") == pytest.approx(0.5)
    assert window.times["ttft"].count == pytest.approx(15 * window.seconds)


def test_a_window_is_made_of_few_parts() -> None:
    history = watched(3 * 3600)
    assert len(history.parts(3 * 3600 - 600)) < 40
    assert len(history.parts(3600)) < 40


def test_two_days_and_no_more() -> None:
    history = watched(60 * 3600, 30.0)
    assert len(history.tens) == 48 * 6
    assert len(history.minutes) == 4 * 60
    assert history.started_at is not None
    assert history.started_at >= 11 * 3600
    window = history.window(100 * 3600, 60 * 3600)
    assert window is not None
    assert window.seconds == pytest.approx(48 * 3600, abs=1200)


def test_a_gap_is_marked_and_counters_are_kept() -> None:
    history = watched(100)
    grown = history.add(reading_at(400.0))
    assert grown is not None
    assert (grown.counters["num_tokens"], grown.gap_s, grown.seconds) == (3000, 295, 5)
    assert grown.gauge("running_requests") == 4, "of the time in which somebody looked"
    window = history.window(600, 400.0)
    assert window is not None
    assert (window.counters["num_tokens"], window.gap_s) == (4000, 295)
    assert window.per_second("num_tokens") == pytest.approx(10)
    late = history.add(reading_at(412.0))
    assert late is not None
    assert late.gap_s == 0, "less than 2.5 intervals"


def test_a_restart() -> None:
    history = watched(100)
    grown = history.add(reading_at(105.0, tokens=7.0))
    assert grown is not None
    assert (grown.num_restarts, grown.counters["num_tokens"]) == (1, 7)
    window = history.window(600, 105.0)
    assert window is not None
    assert (window.num_restarts, window.counters["num_tokens"]) == (1, 1007)


def test_a_clock_that_goes_back() -> None:
    history = watched(100)
    assert history.add(reading_at(50.0, tokens=1010.0)) is None
    assert history.add(reading_at(50.0, tokens=1010.0)) is None
    grown = history.add(reading_at(55.0, tokens=1060.0))
    assert grown is not None
    assert grown.counters["num_tokens"] == 50


def test_a_page_of_before_is_not_counted_again() -> None:
    """As from a Prometheus, whose past is in steps and whose last scrape is a little older."""
    history = watched(100)
    assert history.add(reading_at(92.0)) is None
    assert history.last is not None
    assert history.last.at == 100
    grown = history.add(reading_at(105.0))
    assert grown is not None
    assert (grown.start, grown.counters["num_tokens"]) == (100, 50)


def test_deployments_are_remembered() -> None:
    history = History(5.0)
    for at, model, version in (
        (0.0, "m", None),
        (5.0, "m", "1"),
        (10.0, None, None),
        (15.0, "m", "1"),
        (20.0, "n", "1"),
    ):
        history.add(reading_at(at, model=model, version=version))
    history.add(reading_at(25.0, tokens=1.0, model="n", version=None))  # a restart
    history.add(reading_at(30.0, tokens=2.0, model="n", version="2"))
    assert list(history.changes) == [
        Change(20.0, "model", "m", "n"),
        Change(30.0, "version", "1", "2"),
    ]


def test_counters_that_are_away_for_a_look() -> None:
    history = watched(100)
    history.add(replace(reading_at(105.0), counters={}, times={}, acceptance=None))
    grown = history.add(reading_at(110.0))
    assert grown is not None
    assert grown.counters["num_tokens"] == 100
    assert grown.times["ttft"].counts == (100, 50, 0)
    assert grown.acceptance is not None
    assert grown.acceptance.num_drafts == 100


def test_replicas_come_and_go() -> None:
    histories = Histories(5.0)
    assert histories.update({"a": reading_at(0.0), "b": Unreadable("gone", 0.0)}, 0.0) == {}
    grown = histories.update({"a": reading_at(5.0)}, 5.0)
    assert [*grown] == ["a"]
    assert "b" not in histories, "nothing is known of it"
    histories.update({"c": reading_at(3600.0)}, 3600.0)
    assert [*histories] == ["a", "c"]
    histories.update({"a": Unreadable("gone", 7 * 3600.0)}, 7 * 3600.0)
    assert [*histories] == ["c"]
    assert len(histories) == 1
    assert histories["c"].last == reading_at(3600.0)


def test_not_more_than_so_many_replicas() -> None:
    histories = Histories(5.0)
    for number in range(2_100):
        histories.update({str(number): reading_at(float(number))}, float(number))
    assert len(histories) == 2_000
    assert "0" not in histories


def random_history(rng: random.Random, steps: int) -> tuple[History, list[Growth]]:
    """With restarts, gaps, metrics that come and go; and every growth of it."""
    history, growths = History(5.0), []
    at, tokens = 1e9, 0.0
    for _ in range(steps):
        at += rng.choice([5.0, 5.0, 5.0, 5.1, 20.0, 400.0, 5000.0])
        tokens = 0.0 if rng.random() < 0.02 else tokens + rng.randrange(100)
        reading = reading_at(at, tokens)
        if rng.random() < 0.1:
            reading = replace(reading, times={}, acceptance=None)
        grown = history.add(reading)
        if grown is not None:
            growths.append(grown)
    return history, growths


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 400))
def test_a_window_has_every_growth_once(seed: int, steps: int) -> None:
    history, growths = random_history(random.Random(seed), steps)
    now = growths[-1].end
    whole = history.window(1e9, now)
    assert whole is not None
    kept = [each for each in growths if each.start >= whole.start]
    if growths[0].end > now - 47 * 3600:
        assert kept == growths, "nothing is lost in two days"
    expected = Growth.total(kept)
    assert expected is not None
    assert whole.counters == pytest.approx(expected.counters)
    assert whole.gap_s == pytest.approx(expected.gap_s)
    assert whole.num_restarts == expected.num_restarts
    assert whole.acceptance == expected.acceptance
    assert whole.gauge_seconds == pytest.approx(expected.gauge_seconds)
    for seconds in (60.0, 600.0, 6000.0):
        parts = history.parts(now - seconds)
        ends = [each.end for each in parts]
        assert ends == sorted(ends)
        assert all(b.start >= a.end for a, b in pairwise(parts))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.integers(2, 300))
def test_a_history_survives_as_json(seed: int, steps: int) -> None:
    history, growths = random_history(random.Random(seed), steps)
    written = json.loads(compact(history_to_json(history)))
    again = history_from_json(written)
    assert json.loads(compact(history_to_json(again))) == written
    for kept, known in ((again.tens, history.tens), (again.minutes, list(history.minutes)[-60:])):
        assert [(each.start, each.end, each.acceptance) for each in kept] == [
            (each.start, each.end, each.acceptance) for each in known
        ]
    assert again.changes == history.changes
    now = growths[-1].end
    before, after = history.window(1e9, now), again.window(1e9, now)
    assert before is not None
    assert after is not None
    assert (after.start, after.end) == (before.start, before.end)
    assert after.num_restarts == before.num_restarts
    assert after.counters == pytest.approx(before.counters, rel=1e-5)
    assert after.gauge_seconds == pytest.approx(before.gauge_seconds, rel=1e-5)
    assert {name: each.counts for name, each in after.times.items()} == {
        name: pytest.approx(each.counts, rel=1e-5) for name, each in before.times.items()
    }


def test_written_again_it_says_what_is_now() -> None:
    """What was put into words before is kept; new names and rows come to it, old ones go."""
    history, writer = History(60.0), HistoryWriter()
    for minute in range(3 * 1440):
        more = {"gauges": {"waiting_requests": 2.0}} if minute > 2000 else {}
        history.add(reading_at(60.0 * minute, **more))
        if minute % 499 == 0 or minute > 3 * 1440 - 3:
            again = history_from_json(json.loads(writer.text(history)))
            assert history_to_json(again) == history_to_json(history)
    assert len(writer.text(history)) < 1.1 * len(HistoryWriter().text(history))


def test_a_history_goes_on_after_it_was_read() -> None:
    """The reading that was the last one is kept with its page, so nothing is counted twice."""
    page = "vllm:generation_tokens_total {}\nvllm:num_requests_running 3\n"
    history = History(5.0)
    for at in range(0, 1000, 5):
        history.add(reading_of(page.format(at), 1e9 + at))
    again = history_from_json(json.loads(compact(history_to_json(history))))
    grown = again.add(reading_of(page.format(1995), 1e9 + 1995))
    assert grown is not None
    assert (grown.counters, grown.gap_s) == ({"num_tokens": 1000}, 995)
    window = again.window(1e6, 1e9 + 1995)
    assert window is not None
    assert window.counters == {"num_tokens": 1995}


@pytest.mark.parametrize(
    "data", [{}, {"format": 2}, {"format": 1}, {**history_to_json(watched(100)), "tens": [[1]]},
             {**history_to_json(watched(2000)), "names": []}],
)  # fmt: skip
def test_what_is_no_history(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no history|in form 2|unpack"):
        history_from_json(data)


def test_a_history_is_small() -> None:
    assert len(compact(history_to_json(watched(48 * 3600, 60.0)))) < 120_000


def test_a_model_that_is_on_no_page_outlives_a_restart_of_the_watch() -> None:
    """llama.cpp is asked for it; without it no other replica would be a fellow of this one."""
    history = History(5.0)
    for at in (1000.0, 1005.0):
        page = f"llamacpp:tokens_predicted_total {at}\nllamacpp:requests_processing 1\n"
        history.add(replace(reading_of(page, at, "b4000"), model="/models/a.gguf"))
    read = history_from_json(json.loads(json.dumps(history_to_json(history))))
    assert read.last is not None
    assert (read.last.engine, read.last.model, read.last.version) == (
        "llamacpp", "/models/a.gguf", "b4000",
    )  # fmt: skip
    written = history_to_json(history)
    del written["last"]["model"]  # as an earlier version wrote it
    assert history_from_json(written).last is not None

"""A history recorded from a real server, by `benchmarks/record_history.py`, and what `bench`
measured in the same minutes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from outdraft.observe.reading import Growth, Reading, from_json
from outdraft.watch.history import History
from outdraft.watch.scraper import Unreadable
from outdraft.watch.snapshot import WindowFigures, window_figures
from outdraft.watch.watch import Watch, WatchRules

PATH = Path(__file__).parent / "data" / "smollm2.jsonl.gz"


@pytest.fixture(scope="module")
def recorded() -> tuple[dict[str, Any], list[Reading]]:
    with gzip.open(PATH, "rt") as file:
        first, *rest = file
    return json.loads(first), [from_json(json.loads(line)) for line in rest]


def test_nothing_was_wrong_and_the_restart_is_told(
    recorded: tuple[dict[str, Any], list[Reading]],
) -> None:
    header, readings = recorded
    every_s = header["every_s"]
    by_look = {round((reading.at - readings[0].at) / every_s): reading for reading in readings}
    watch = Watch(WatchRules(interval_s=every_s), now=readings[0].at)
    for look in range(max(by_look) + 1):
        now = readings[0].at + look * every_s
        snapshot = watch.look({"real": by_look.get(look) or Unreadable("refused", now)}, now)
    told = [(each.notice.kind, each.notice.text) for each in watch.told]
    assert [text for kind, text in told if kind == "replica"] == [
        "does not answer: refused",
        "answers again",
        "was restarted",
    ]
    assert snapshot.alarms == ()
    (view,) = snapshot.replicas
    assert (view.engine, view.model, view.speculates) == ("outdraft", "smollm2-135m", True)
    assert view.window is not None
    assert view.window.num_restarts == 1


@pytest.mark.parametrize("part", [0, 1])
def test_figures_are_those_of_bench(
    recorded: tuple[dict[str, Any], list[Reading]], part: int
) -> None:
    header, readings = recorded
    bench = header["bench"][part]
    figures, window = figures_of(readings, bench, header["every_s"])
    summary = bench["summary"]
    assert figures.acceptance_rate == pytest.approx(summary["acceptance"]["rate"], rel=0.1)
    assert figures.acceptance_length == pytest.approx(summary["acceptance"]["length"], rel=0.05)
    assert figures.num_requests >= summary["num_requests"]
    for name in ("ttft", "tpot", "e2e"):
        p50 = next(each["value"] for each in summary[name] if each["q"] == 0.5) / 1e3
        bounds = window.times[name].bounds
        bucket = window.times[name].bucket_of(0.5)
        assert bucket is not None
        at = bounds.index(bucket[1])
        # A client also waits for the network, and it sent a few requests that it did not count.
        assert (bounds[at - 2] if at > 1 else 0.0) <= p50 <= bounds[at + 1]


def figures_of(
    readings: list[Reading], bench: dict[str, Any], every_s: float
) -> tuple[WindowFigures, Growth]:
    """From the last look before it to the first one after it."""
    history = History(every_s)
    before = [reading for reading in readings if reading.at <= bench["start"]][-1:]
    during = [reading for reading in readings if reading.at > bench["start"]]
    end = next(at for at, reading in enumerate(during) if reading.at > bench["end"])
    kept = [*before, *during[: end + 1]]
    for reading in kept:
        history.add(reading)
    window = history.window(3600.0, kept[-1].at)
    assert window is not None
    return window_figures(window), window

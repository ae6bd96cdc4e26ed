"""Where readings come from, with servers that are there and a Prometheus that is not always."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from outdraft.errors import BackendError
from outdraft.observe.fetch import open_session
from outdraft.observe.reading import Reading, reading_of
from outdraft.options import add_options, fill_options
from outdraft.testing.fake_server import fake_server, refusing_url
from outdraft.watch.options import ACTING_OPTIONS, SHOWING_OPTIONS, WATCHED_OPTIONS
from outdraft.watch.prometheus import PrometheusSource
from outdraft.watch.scraper import Unreadable
from outdraft.watch.settings import WatchSettings
from outdraft.watch.sources import Looks, Scraped, Servers
from outdraft.watch.watch import Watch, WatchRules

OPTIONS = (*WATCHED_OPTIONS, *ACTING_OPTIONS, *SHOWING_OPTIONS)
NOW = 1_700_000_000.0


def settings_of(*words: str) -> WatchSettings:
    parser = argparse.ArgumentParser()
    add_options(parser, "all", OPTIONS)
    args = parser.parse_args(words)
    fill_options(args, OPTIONS)
    return WatchSettings.from_options(args)


def test_servers_are_asked_and_a_bad_one_costs_nothing() -> None:
    async def look(url: str) -> tuple[Looks, str | None]:
        settings = settings_of(url, refusing_url(), "--interval", "1s")
        async with open_session() as session:
            servers = Servers(session, settings, pytest.fail)
            found = await servers.look(NOW)
            return found, servers.url(next(iter(found)))

    with fake_server() as url:
        found, known = asyncio.run(look(url))
    good, bad = found.values()
    assert isinstance(good, Reading)
    assert isinstance(bad, Unreadable)
    assert known == url


def test_a_file_that_changes_is_read_again_and_its_problem_told_once(tmp_path: Path) -> None:
    file = tmp_path / "targets.txt"
    file.write_text(refusing_url())
    said: list[str] = []

    async def work() -> list[int]:
        async with open_session() as session:
            servers = Servers(session, settings_of("--targets", str(file)), said.append)
            counts = [len(await servers.look(NOW))]
            file.write_text(f"{refusing_url()}\n{refusing_url()}\n")
            counts.append(len(await servers.look(NOW + 10)))  # not yet
            counts.append(len(await servers.look(NOW + 31)))
            file.unlink()
            counts.append(len(await servers.look(NOW + 62)))
            counts.append(len(await servers.look(NOW + 93)))
            return counts

    assert asyncio.run(work()) == [1, 1, 2, 2, 2]
    assert len(said) == 1
    assert "targets.txt" in said[0]


class FakePrometheus(PrometheusSource):
    """Answers, or does not."""

    def __init__(self, answers: list[Looks | BackendError]) -> None:
        self.answers = answers
        self.apart_s = 15.0

    async def latest(self, now: float) -> dict[str, Reading | Unreadable]:
        answer = self.answers.pop(0)
        if isinstance(answer, BackendError):
            raise answer
        return dict(answer)

    async def past(
        self, since_s: float, now: float
    ) -> AsyncIterator[tuple[float, dict[str, Reading]]]:
        for back in (45.0, 30.0, 15.0):
            yield 15.0, {"a": reading(now - back, 100 * (60 - back))}


def reading(at: float, tokens: float) -> Reading:
    return reading_of(f"vllm:generation_tokens_total {tokens}\n", at)


def test_a_prometheus_that_fails_makes_all_unreadable_and_is_told_once() -> None:
    said: list[str] = []
    gone = BackendError("Prometheus at http://p: no answer")
    source = FakePrometheus([{"a": reading(NOW, 1)}, gone, gone, {"a": reading(NOW + 60, 2)}])

    async def work() -> list[Looks]:
        scraped = Scraped(source, said.append)
        await scraped.start(NOW)
        assert scraped.interval_s == 15.0
        assert scraped.url("a") is None
        return [await scraped.look(NOW + each) for each in (15, 30, 60)]

    first, second, third = asyncio.run(work())
    assert isinstance(first["a"], Unreadable)
    assert isinstance(second["a"], Unreadable)
    assert isinstance(third["a"], Reading)
    assert said == [str(gone)]


def test_the_past_of_a_prometheus_is_history() -> None:
    watch = Watch(WatchRules(interval_s=15.0), now=NOW)

    async def work() -> None:
        await Scraped(FakePrometheus([]), pytest.fail).remember(watch, 60, NOW)

    asyncio.run(work())
    window = watch.histories["a"].window(60, NOW)
    assert window is not None
    assert window.counters["num_tokens"] == 3000
    assert window.seconds == 30


def test_the_past_is_not_counted_again_after_a_restart(tmp_path: Path) -> None:
    """An earlier watch saw all but the last look: 100 tokens a second stay 100."""
    rules, state = WatchRules(interval_s=15.0), tmp_path / "watch.json"
    earlier = Watch(rules, now=NOW - 60, state=state)
    for back in (60.0, 45.0, 30.0):
        earlier.look({"a": reading(NOW - back, 100 * (60 - back))}, NOW - back)
    earlier.close(NOW - 30)
    watch = Watch(rules, now=NOW, state=state)

    async def work() -> None:
        await Scraped(FakePrometheus([]), pytest.fail).remember(watch, 60, NOW)

    asyncio.run(work())
    history = watch.histories["a"]
    window = history.window(60, NOW)
    assert window is not None
    assert window.per_second("num_tokens") == 100
    assert window.counters["num_tokens"] == 4500
    assert [each.end - NOW for each in history.fine] == [-30, -15]

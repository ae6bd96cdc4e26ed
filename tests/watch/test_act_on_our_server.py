"""`--act` against a running server of ours with a real model: scraped and told over HTTP. Only the
clock of the watch is another one: a minute of it is a second."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outdraft import Engine, Speculation, load_engine
from outdraft.observe.fetch import fetch_reading, open_session
from outdraft.server.canary import Canary
from outdraft.testing.tiny_models import tiny_model
from outdraft.watch import run
from outdraft.watch.acting import Acting
from outdraft.watch.advice import AdviceRules
from outdraft.watch.benefit.costs import Costs, LoadCosts
from outdraft.watch.run import Running
from outdraft.watch.sources import Looks
from outdraft.watch.watch import Watch, WatchRules
from tests.server.serving import serving
from tests.server.wire import FEW, Wire

TIMES = 60.0
BEGIN, STARTED = 1_800_000_000.0, time.monotonic()
ADMIN_KEY = "sk-Operator"
RULES = WatchRules(
    interval_s=5.0, window_s=180.0, advice=AdviceRules(dwell_s=120.0), acts=True, weigh_every_s=5.0
)
LIMIT_S = 90.0  # of real time; it takes about ten seconds
PROMPTS = [f" the draft and the {word} and the draft and the {word}" for word in "abcdef"]


def clock() -> float:
    return BEGIN + TIMES * (time.monotonic() - STARTED)


class OurServer:
    interval_s = RULES.interval_s

    def __init__(self, session: Any, address: str) -> None:
        self.session, self.address = session, address

    async def look(self, now: float) -> Looks:
        return {"a": await fetch_reading(self.session, self.address, 10.0, clock=clock)}

    def url(self, replica: str) -> str | None:
        return self.address


class Asking:
    """Asks for the same texts again and again, beside the watch."""

    def __init__(self, url: str) -> None:
        self.texts: set[tuple[int, str]] = set()
        self.problems: list[Exception] = []
        self._url, self._is_over = url, threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._ask, args=(first,)) for first in (0, 3)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            for thread in threads:
                thread.join()

    def _ask(self, first: int) -> None:
        wire = Wire(self._url)
        with wire.client:
            while not self._is_over.is_set():
                for number in range(first, first + 3):
                    try:
                        self.texts.add((number, text_of(wire, number)))
                    except Exception as problem:
                        self.problems.append(problem)
                        return


def text_of(wire: Wire, number: int) -> str:
    asked = {"max_tokens": 100, "logit_bias": FEW, "ignore_eos": True, "seed": number}
    answer = wire.complete(PROMPTS[number], temperature=number % 3 / 2, **asked)
    return str(answer["choices"][0]["text"])


def watched(
    engine: Engine,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    until: int,
    costs: Costs | None = None,
    **options: Any,
) -> tuple[Watch, set[tuple[int, str]], dict[str, Any]]:
    """The watch after so many actions, the texts that were written meanwhile, and what the server
    says at the end."""
    monkeypatch.setattr(run, "time", SimpleNamespace(time=clock))
    watch = Watch(RULES, now=clock(), costs=costs)

    async def look_on(url: str) -> None:
        async with open_session() as session:
            acting = Acting(folder, session, ADMIN_KEY)
            running = Running(watch, OurServer(session, url), None, acting)
            end = time.monotonic() + LIMIT_S
            while len(told(watch)) < until and time.monotonic() < end:
                await running.look()
                await asyncio.sleep(RULES.interval_s / TIMES)
            await running.end()

    with serving(engine, admin_key=ADMIN_KEY, **options) as (url, _):
        asking = Asking(url)
        with asking.going_on():
            asyncio.run(look_on(url))
        assert not asking.problems
        wire = Wire(url)
        with wire.client:
            key = {"Authorization": f"Bearer {ADMIN_KEY}"}
            shown: dict[str, Any] = wire.client.get("/admin/speculation", headers=key).json()
    return watch, asking.texts, shown


def told(watch: Watch) -> list[str]:
    """What was done, without the figures."""
    notices = [each.notice for each in watch.events.recent]
    return [each.text.split(":")[0] for each in notices if each.kind.startswith("action")]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("act") / "llama", "llama")


@pytest.fixture(scope="module")
def expected(target: Path) -> set[tuple[int, str]]:
    """Of a server without speculation."""
    with serving(load_engine(str(target), kv_cache_bytes=8 << 20)) as (url, _):
        wire = Wire(url)
        with wire.client:
            return {(number, text_of(wire, number)) for number in range(len(PROMPTS))}


def test_speculation_that_loses_is_turned_off_and_texts_are_the_same(
    target: Path,
    expected: set[tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A draft of other weights, eight tokens ahead: nothing but work."""
    draft = str(tiny_model(tmp_path / "draft", "llama", seed=7))
    bad = Speculation("draft_model", k=8, draft=draft)
    engine = load_engine(str(target), bad, kv_cache_bytes=8 << 20)
    watch, texts, shown = watched(engine, tmp_path, monkeypatch, until=3, canary=Canary(0.02))
    assert told(watch) == ["TURN OFF", "TURN OFF is done", "TURN OFF helped"]
    assert texts == expected
    assert (shown["max_k"], shown["canary_share"]) == (0, 0.02)
    [*_, last] = watch.events.recent
    assert last.notice.data["limits"] == {
        "by_load": (), "temperatures": (), "canary_share": 0.02,
    }  # fmt: skip


@pytest.mark.slow
def test_turning_off_what_pays_is_taken_back_and_said(
    target: Path,
    expected: set[tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Costs that were measured on another machine say that a round takes ten plain steps."""
    ngram = Speculation("ngram", k=4, prompt_lookup_min=1)
    engine = load_engine(str(target), ngram, kv_cache_bytes=8 << 20)
    wrong = Costs(tuple(LoadCosts(load, {4.0: 10.0}, 0.01) for load in (1.0, 2.0, 4.0)))
    watch, texts, shown = watched(engine, tmp_path, monkeypatch, until=4, costs=wrong)
    assert told(watch) == [
        "TURN OFF",
        "TURN OFF is done",
        "TURN OFF did not help and is taken back",
        "TURN OFF is taken back",
    ]
    assert texts == expected
    assert (shown["max_k"], shown["limits"], shown["canary_share"]) == (None, [], 0.0)

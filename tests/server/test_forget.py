"""POST /forget: only where the server was started for it, and then in order with the requests."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from outdraft import Speculation, load_engine
from outdraft.engine.engine import Engine
from tests.server.conftest import API_KEY
from tests.server.serving import serving
from tests.server.valve import Valve
from tests.server.wire import COMPLETIONS, PROMPT, Wire, error_of, until

ASKED = {"prompt": PROMPT, "max_tokens": 40, "ignore_eos": True, "temperature": 1.0, "seed": 3}
KEY = {"Authorization": f"Bearer {API_KEY}"}


@pytest.fixture
def engine(tiny_folder: Path) -> Engine:
    return load_engine(str(tiny_folder), Speculation("suffix", k=4), kv_cache_bytes=8 << 20)


@pytest.fixture
def client(engine: Engine) -> Iterator[httpx.Client]:
    with (
        serving(engine, can_forget=True, api_key=API_KEY, always_metrics=True) as (url, _),
        httpx.Client(base_url=url, headers=KEY, timeout=60) as client,
    ):
        yield client


def test_a_server_that_was_not_started_for_it_does_not(wire: Wire) -> None:
    error_of(wire.client.post("/forget"), 404)


def test_a_key_and_a_small_body_are_needed(client: httpx.Client) -> None:
    assert error_of(client.post("/forget", headers={"Authorization": ""}), 401)
    assert error_of(client.post("/forget", content=b"x" * (5 << 20)), 400)
    assert error_of(client.get("/forget"), 405)
    assert client.post("/forget").status_code == 200


def test_answers_are_remembered_until_then(client: httpx.Client) -> None:
    def ask() -> tuple[str, int]:
        answer = client.post(COMPLETIONS, json=ASKED).json()
        return answer["choices"][0]["text"], answer["metrics"]["speculative_decoding"][
            "num_accepted_draft_tokens"
        ]

    first, again = ask(), ask()
    assert client.post("/forget").status_code == 200
    last = ask()
    assert first[0] == again[0] == last[0]
    assert again[1] > first[1] + 20
    assert last[1] == first[1]


def test_texts_that_are_being_written_stay_the_same(engine: Engine) -> None:
    valve = Valve(engine)
    with serving(engine, can_forget=True) as (url, server), ThreadPoolExecutor() as pool:
        wire = Wire(url)
        with wire.client:
            text = wire.complete(**ASKED)["choices"][0]["text"]
            with valve.closed():
                running = [pool.submit(wire.complete, **ASKED) for _ in range(2)]
                until(lambda: server._service.loop.num_open == 2, "both are open")
                calls = [pool.submit(wire.client.post, "/forget") for _ in range(3)]
            assert {each.result().status_code for each in calls} == {200}
            assert [each.result()["choices"][0]["text"] for each in running] == [text, text]


def test_an_engine_that_breaks_while_it_forgets_says_so(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(engine, can_forget=True) as (url, server):

        def broken() -> None:
            raise RuntimeError("no memory left to lose")

        monkeypatch.setattr(engine, "forget", broken)
        with httpx.Client(base_url=url, timeout=60) as client:
            error = error_of(client.post("/forget"), 500)
            assert "no memory left to lose" in error["message"]
    assert "no memory left to lose" in (server.failure or "")

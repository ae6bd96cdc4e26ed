"""/admin/speculation: only with its own key, strict, at once, and no text changes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from outdraft import Engine, load_engine
from outdraft.server.canary import Canary
from tests.server.conftest import API_KEY, NGRAM
from tests.server.serving import serving
from tests.server.wire import COMPLETIONS, FEW, PROMPT, Metrics, Wire, error_of

ADMIN_KEY = "sk-Operator"
PATH = "/admin/speculation"
ADMIN = {"Authorization": f"Bearer {ADMIN_KEY}"}
ASKED: dict[str, Any] = {
    "prompt": PROMPT, "max_tokens": 60, "logit_bias": FEW, "ignore_eos": True, "temperature": 0.7,
    "seed": 3, "include_metrics": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def locked(tiny_folder: Path) -> Iterator[httpx.Client]:
    """A server with both keys; the client sends the ordinary one."""
    engine = load_engine(str(tiny_folder), NGRAM, kv_cache_bytes=8 << 20)
    key = {"Authorization": f"Bearer {API_KEY}"}
    with (
        serving(engine, api_key=API_KEY, admin_key=ADMIN_KEY) as (url, _),
        httpx.Client(base_url=url, headers=key, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def client(locked: httpx.Client) -> Iterator[httpx.Client]:
    yield locked
    assert limit(locked, max_k=None)["limits"] == []


def limit(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post(PATH, json=body, headers=ADMIN)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert client.get(PATH, headers=ADMIN).json() == told
    return told


def drafted(client: httpx.Client, **body: Any) -> tuple[str, int, int]:
    """The text, draft tokens and rounds with a draft of one answer."""
    answer = client.post(COMPLETIONS, json={**ASKED, **body}).json()
    told = answer["metrics"]["speculative_decoding"]
    return answer["choices"][0]["text"], told["num_draft_tokens"], told["num_spec_steps"]


def max_k(client: httpx.Client) -> float:
    return Metrics(client.get("/metrics").text).value("outdraft:speculation_max_k")


# ------------------------------------------------------------------ who may


def test_without_an_admin_key_there_is_no_such_path(wire: Wire) -> None:
    for headers in ({}, ADMIN):
        error_of(wire.client.get(PATH, headers=headers), 404)
        error_of(wire.client.post(PATH, json={"max_k": 0}, headers=headers), 404)
    assert PATH not in wire.client.get("/openapi.json").json()["paths"]


@pytest.mark.parametrize(
    "headers",
    [
        {},  # the client's own: the ordinary key
        {"Authorization": ""},
        {"Authorization": f"Basic {ADMIN_KEY}"},
        {"Authorization": f"Bearer {ADMIN_KEY}x"},
        {"Authorization": f"Bearer {ADMIN_KEY[:-1]}"},
        {"Authorization": f"Bearer {ADMIN_KEY.lower()}"},
        {"X-Api-Key": ADMIN_KEY},
    ],
)
@pytest.mark.parametrize("path", [PATH, f"{PATH}/", "/admin/", "/admin/other"])
def test_only_the_admin_key_opens_it(
    client: httpx.Client, headers: dict[str, str], path: str
) -> None:
    for answer in (
        client.get(path, headers=headers),
        client.post(path, json={"max_k": 0}, headers=headers),
        client.request("OPTIONS", path, headers=headers),
    ):
        error = error_of(answer, 401)
        assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")
        assert ADMIN_KEY not in answer.text


@pytest.mark.parametrize("path", [f"/{PATH}", PATH.upper(), f"{PATH}%2f", "/admin"])
def test_no_other_spelling_of_the_path_leads_there(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json={"max_k": 0})
    assert answer.status_code in (401, 404, 405)
    assert max_k(client) == 4


@pytest.mark.parametrize("path", ["/metrics", "/v1/models", COMPLETIONS])
def test_the_admin_key_opens_nothing_else(client: httpx.Client, path: str) -> None:
    error_of(client.get(path, headers=ADMIN), 401)


def test_it_needs_its_key_also_where_the_rest_is_open(tiny_engine: Engine) -> None:
    with serving(tiny_engine, admin_key=ADMIN_KEY) as (url, _):
        wire = Wire(url)
        with wire.client:
            wire.complete(max_tokens=2)
            error_of(wire.client.post(PATH, json={"max_k": 0}), 401)
            assert limit(wire.client, max_k=0)["max_k"] == 0


# ------------------------------------------------------------------ what is taken


def test_what_it_says(client: httpx.Client) -> None:
    started = {"method": "ngram", "k": 4, "schedule": []}
    told = client.get(PATH, headers=ADMIN).json()
    assert told == {
        **started, "limits": [], "max_k": None, "temperatures": [], "canary_share": 0.0,
    }  # fmt: skip
    assert limit(client, max_k=2) == {**told, "limits": [[1, 2]], "max_k": 2}
    assert limit(client, schedule=[[1, 4], [3, 0]]) == {**told, "limits": [[1, 4], [3, 0]]}
    assert limit(client, max_k=0, canary_share=0.02) == {
        **told, "limits": [[1, 0]], "max_k": 0, "canary_share": 0.02,
    }  # fmt: skip
    assert limit(client, max_k=None, temperatures=["1+", "0.7-1", "1+"]) == {
        **told, "temperatures": ["0.7-1", "1+"],
    }  # fmt: skip
    assert limit(client, max_k=None) == told


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "max_k"),
        ({"max_k": 1, "schedule": [[1, 2]]}, "max_k"),
        ({"max_k": -1}, "max_k"),
        ({"max_k": 65}, "max_k"),
        ({"max_k": "2"}, "max_k"),
        ({"max_k": 2.0}, "max_k"),
        ({"max_k": True}, "max_k"),
        ({"schedule": None}, "schedule"),
        ({"schedule": []}, "schedule"),
        ({"schedule": [[2, 3]]}, "schedule"),
        ({"schedule": [[1, 3], [1, 2]]}, "schedule"),
        ({"schedule": [[1, 3], [9, 2], [4, 0]]}, "schedule"),
        ({"schedule": [[1, 65]]}, "schedule"),
        ({"schedule": [[1, -1]]}, "schedule"),
        ({"schedule": [[1, 2, 3]]}, "schedule"),
        ({"schedule": [[1, 2], [1 << 30, 3]]}, "schedule"),
        ({"schedule": [[1]]}, "schedule"),
        ({"schedule": [[1, 1.5]]}, "schedule"),
        ({"schedule": {"1": 2}}, "schedule"),
        ({"schedule": [[n, 1] for n in range(1, 100)]}, "schedule"),
        ({"k": 2}, "k"),
        ({"canary_share": 0.01}, "max_k"),
        ({"temperatures": ["1+"]}, "max_k"),
        ({"max_k": 1, "temperatures": ["1"]}, "temperatures"),
        ({"max_k": 1, "temperatures": "1+"}, "temperatures"),
        ({"max_k": 1, "temperatures": None}, "temperatures"),
        ({"max_k": 1, "temperatures": [1.0]}, "temperatures"),
        ({"max_k": 1, "temperatures": ["1+"] * 6}, "temperatures"),
        ({"max_k": 0, "canary_share": 0.021}, "canary_share"),
        ({"max_k": 0, "canary_share": -0.01}, "canary_share"),
        ({"max_k": 0, "canary_share": "0.01"}, "canary_share"),
        ([], "body"),
        (None, "body"),
    ],
)
def test_other_bodies_are_refused_and_change_nothing(
    client: httpx.Client, body: Any, param: str
) -> None:
    limit(client, max_k=3)
    error = error_of(client.post(PATH, json=body, headers=ADMIN), 400)
    assert error["param"] == param
    assert client.get(PATH, headers=ADMIN).json()["limits"] == [[1, 3]]


def test_a_server_without_speculation_has_nothing_to_limit(tiny_folder: Path) -> None:
    engine = load_engine(str(tiny_folder), kv_cache_bytes=8 << 20)
    with serving(engine, admin_key=ADMIN_KEY) as (url, _):
        wire = Wire(url)
        with wire.client:
            error_of(wire.client.post(PATH, json={"max_k": 1}, headers=ADMIN), 400)
            told = wire.client.get(PATH, headers=ADMIN).json()
            assert (told["method"], told["k"]) == ("off", 0)


# ------------------------------------------------------------------ what it does


def test_drafts_are_as_long_as_allowed_and_the_text_is_the_same(client: httpx.Client) -> None:
    text, most, _ = drafted(client)
    assert most > 30
    for k in (0, 1, 2, 30):
        limit(client, max_k=k)
        assert max_k(client) == min(k, 4)
        same, drafts, rounds = drafted(client)
        assert same == text
        assert drafts <= k * rounds
        assert (drafts > 0) == (k > 0)
        own, drafts, rounds = drafted(client, speculation={"k": 5})  # a request gets no more
        assert own == text
        assert drafts <= k * rounds
    limit(client, max_k=None)
    assert max_k(client) == 4
    assert drafted(client)[:2] == (text, most)


def test_texts_of_some_temperatures_get_no_drafts(client: httpx.Client) -> None:
    texts = {t: drafted(client, temperature=t) for t in (0.0, 0.7, 0.8, 1.5)}
    assert all(drafts > 0 for _, drafts, _ in texts.values())
    limit(client, max_k=None, temperatures=["0.7-1", "1+"])
    for temperature, (text, *_) in texts.items():
        same, drafts, _ = drafted(client, temperature=temperature)
        assert same == text
        assert (drafts > 0) == (temperature <= 0.7)


def test_a_schedule_is_by_running_texts(client: httpx.Client) -> None:
    limit(client, schedule=[[1, 1], [2, 0]])
    text, drafts, rounds = drafted(client)
    assert 0 < drafts == rounds
    answer = client.post(COMPLETIONS, json={**ASKED, "n": 2}).json()
    assert answer["choices"][0]["text"] == text
    assert answer["metrics"]["speculative_decoding"]["num_draft_tokens"] == 0


def test_it_takes_effect_in_the_middle_of_texts(client: httpx.Client) -> None:
    expected = drafted(client, max_tokens=200)[0]
    with ThreadPoolExecutor(4) as pool:
        texts = [pool.submit(drafted, client, max_tokens=200) for _ in range(8)]
        for number in range(20):
            limit(client, max_k=number % 3)
    assert {each.result()[0] for each in texts} == {expected}


def test_turned_off_it_counts_as_stopped(client: httpx.Client) -> None:
    def stopped() -> float:
        samples = Metrics(client.get("/metrics").text).families["outdraft:decode_tokens"].samples
        return sum(each.value for each in samples if each.labels["side"] == "stopped")

    def is_stopped() -> float:
        return Metrics(client.get("/metrics").text).value("outdraft:speculation_stopped")

    before = stopped()
    assert is_stopped() == 0
    limit(client, max_k=0)
    assert is_stopped() == 1
    drafted(client)
    assert stopped() == before + 58  # without the first token and the first step


def test_turned_off_a_canary_still_drafts_now_and_then(tiny_folder: Path) -> None:
    """And texts are the same: what it would be worth is seen without turning it on."""
    engine = load_engine(str(tiny_folder), NGRAM, kv_cache_bytes=8 << 20)
    canary = Canary(0.0, num_steps=3, chance=0.5)
    with serving(engine, admin_key=ADMIN_KEY, canary=canary) as (url, _):
        wire = Wire(url)
        with wire.client:
            text = drafted(wire.client)[0]
            limit(wire.client, max_k=0)
            assert drafted(wire.client)[:2] == (text, 0)
            before = wire.metrics()
            limit(wire.client, max_k=0, canary_share=0.02)
            found = [drafted(wire.client, max_tokens=400) for _ in range(6)]
            assert len({text for text, _, _ in found}) == 1
            assert found[0][0].startswith(text)
            assert 0 < sum(rounds for _, _, rounds in found) < 0.04 * 6 * 400
            after = wire.metrics()
            grown = {
                side: tokens - before.by("outdraft:decode_tokens_total", "side").get(side, 0)
                for side, tokens in after.by("outdraft:decode_tokens_total", "side").items()
            }
            assert grown["speculating"] == 0
            assert 0 < grown["tried"] < 0.1 * grown["stopped"]
            limit(wire.client, max_k=None)
            assert drafted(wire.client)[2] > 10

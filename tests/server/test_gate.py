"""The key: without the right one nothing but /health answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from outdraft.server.gate import Gate
from tests.server.conftest import API_KEY
from tests.server.wire import COMPLETIONS, PROMPT, error_of

CLOSED = (
    ("GET", "/metrics"),
    ("GET", "/docs"),
    ("GET", "/redoc"),
    ("GET", "/openapi.json"),
    ("GET", "/version"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/tiny"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/forget"),
    ("GET", "/not/there"),
    ("GET", "/health/"),
    ("GET", "//health"),
    ("GET", "/metrics?/health"),
)
RIGHT = b"Bearer " + API_KEY.encode()


@pytest.fixture(scope="module")
def client(locked_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=locked_url, timeout=60) as client:
        yield client


@pytest.mark.parametrize(("method", "path"), CLOSED)
def test_closed_without_a_key(client: httpx.Client, method: str, path: str) -> None:
    error = error_of(client.request(method, path), 401)
    assert (error["type"], error["code"]) == ("authentication_error", "invalid_api_key")


def test_health_is_open(client: httpx.Client) -> None:
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"Bearer",
        b"Bearer wrong",
        RIGHT[:-1],
        RIGHT + b"x",
        RIGHT.swapcase(),
        RIGHT.replace(b"Bearer", b"Basic"),
        RIGHT.replace(b"Bearer ", b""),
        RIGHT.replace(b"Bearer ", b"Bearer\t"),
        RIGHT.replace(b"Bearer ", b"Bearer Bearer "),
        b"Bearer \xff\xfe",
    ],
    ids=ascii,
)
def test_other_keys_are_wrong(client: httpx.Client, sent: bytes) -> None:
    error_of(client.get("/v1/models", headers={b"Authorization": sent}), 401)


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"Bearer   "])
def test_the_key_opens(client: httpx.Client, scheme: bytes) -> None:
    headers = {b"Authorization": scheme + API_KEY.encode()}
    assert client.get("/v1/models", headers=headers).status_code == 200
    assert client.get("/metrics", headers=headers).status_code == 200
    assert client.get("/openapi.json", headers=headers).status_code == 200
    asked = {"prompt": PROMPT, "max_tokens": 2}
    assert client.post(COMPLETIONS, json=asked, headers=headers).status_code == 200


def test_a_wrong_key_is_seen_before_the_body(client: httpx.Client) -> None:
    """Whoever may not ask is not read, however much he sends."""
    error_of(client.post(COMPLETIONS, content=b"x" * (5 << 20)), 401)


def test_a_key_of_any_characters() -> None:
    """Headers are bytes: the key is its UTF-8, and nothing else that looks like it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=204)(scope, receive, send)

    async def statuses(*sent: bytes) -> list[int]:
        gate = Gate(app, api_key="sësame", max_body_bytes=0)
        transport = httpx.ASGITransport(gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://gate") as client:
            answers = [await client.get("/", headers={b"Authorization": each}) for each in sent]
        return [answer.status_code for answer in answers]

    encodings = ("utf-8", "latin-1", "utf-16")
    found = asyncio.run(statuses(*(b"Bearer " + "sësame".encode(name) for name in encodings)))
    assert found == [204, 401, 401]

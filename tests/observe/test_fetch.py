"""Servers that answer nonsense, too much, too slowly or never."""

from __future__ import annotations

import asyncio
import base64
import gzip
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import BackendError
from outdraft.observe.fetch import (
    About,
    fetch_about,
    fetch_bytes,
    fetch_reading,
    open_session,
    page_url,
    redacted,
)
from outdraft.testing.fake_server import refusing_url

PAGE = b'vllm:generation_tokens_total{model_name="m"} 5\n'
Writing = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(write: Writing) -> AsyncIterator[str]:
    """`write` is given the head of the request and the connection."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await write(await reader.readuntil(b"\r\n\r\n"), writer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def answering(body: bytes, head: bytes = b"", status: bytes = b"200 OK") -> Writing:
    async def write(_: bytes, writer: asyncio.StreamWriter) -> None:
        length = b"Content-Length: %d\r\n" % len(body)
        writer.write(b"HTTP/1.1 " + status + b"\r\n" + length + head + b"\r\n" + body)

    return write


async def read_from(write: Writing, limit_s: float = 5.0) -> str:
    """The model that it serves, or why it could not be read."""
    async with serving(write) as url, open_session() as session:
        try:
            return str((await fetch_reading(session, url, limit_s)).model)
        except BackendError as failure:
            return str(failure)


async def never(_: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def dripping(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x 1\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def dripping_head(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X-More: 1\r\n")
        await writer.drain()
        await asyncio.sleep(0.02)


async def cut_off(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + PAGE)


async def other_protocol(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 mail.example ESMTP\r\n")


async def closing(_: bytes, writer: asyncio.StreamWriter) -> None: ...


def test_a_page_is_read() -> None:
    assert asyncio.run(read_from(answering(PAGE))) == "m"


@pytest.mark.parametrize(
    ("write", "reason"),
    [
        (answering(b"\x00\x01\xff" * 1000), "binary data, not metrics"),
        (answering(bytes(range(128, 256)) * 50), "no metrics in Prometheus' text form"),
        (answering(b""), "no metrics in Prometheus' text form"),
        (answering(b"  <!doctype html><html>Sign in</html>"), "a web page, not metrics"),
        (
            answering(b"# TYPE up gauge\nup 1\n"),
            "metrics of no engine that is known (outdraft:, llamacpp:, sglang:, vllm:)",
        ),
        (answering(PAGE, b"Location: http://127.0.0.1:1/\r\n", b"302 Found"),
         "it redirects (http 302), which is not followed"),
        (answering(b"no", status=b"401 Unauthorized"), "http 401"),
        (answering(b"\n" * 200_000), "a page of more than 100,000 lines, which is not read"),
        (answering(gzip.compress(PAGE), b"Content-Encoding: gzip\r\n"),
         "a packed page, which nobody asked for"),
        (cut_off, "it closed the connection before the end of the page"),
        (other_protocol, "it does not speak HTTP"),
        (closing, "it closed the connection"),
    ],
)  # fmt: skip
def test_what_is_no_page_has_a_reason(write: Writing, reason: str) -> None:
    assert asyncio.run(read_from(write)) == reason


@pytest.mark.parametrize("write", [never, dripping, dripping_head])
def test_time_is_limited_however_it_is_spent(write: Writing) -> None:
    start = time.monotonic()
    assert asyncio.run(read_from(write, 0.3)) == "no whole answer within 0.3 s"
    assert time.monotonic() - start < 5


def test_ten_megabytes_are_not_read() -> None:
    sent = 0

    async def endless(_: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(640):  # 40 MB
            writer.write(b"vllm:x 1\n" * 7_281)
            await writer.drain()
            sent += 1

    reason = "a page of more than 4 MiB, which is not read"
    assert asyncio.run(read_from(endless)) == reason
    assert sent < 640, "the connection is closed"
    assert asyncio.run(read_from(answering(b"x" * (10 << 20)))) == reason


def test_nobody_there() -> None:
    async def ask(url: str) -> str:
        async with open_session() as session:
            try:
                await fetch_bytes(session, url, 5.0)
            except BackendError as failure:
                return str(failure)
        return ""

    assert "refused" in asyncio.run(ask(refusing_url()))
    for url in ("http://", "ftp://user:secret@h", "http://user:secret@[::", "http://h:99999999/"):
        reason = asyncio.run(ask(url))
        assert reason
        assert "secret" not in reason


def heads_of(
    url_of: Callable[[str], str], api_key: str | None = None
) -> tuple[str, dict[str, str]]:
    """What a server is asked: the first line, the headers."""
    heads: list[bytes] = []

    async def write(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        await answering(PAGE)(head, writer)

    async def ask() -> None:
        async with serving(write) as url, open_session() as session:
            await fetch_reading(session, url_of(url), 5.0, api_key=api_key)

    asyncio.run(ask())
    first, *rest = heads[0].decode().strip().split("\r\n")
    return first, dict(line.split(": ", 1) for line in rest)


def test_credentials_in_the_address_are_sent_as_such() -> None:
    first, headers = heads_of(lambda url: url.replace("http://", "http://us%40er:p%3Aw@"), "key")
    assert first == "GET /metrics HTTP/1.1"
    sent = base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode()
    assert sent == "us@er:p:w"
    assert "us@er" not in headers["Host"]


def test_a_key_is_a_bearer_token() -> None:
    first, headers = heads_of(lambda url: f"{url}/v1", "key")
    assert first == "GET /metrics HTTP/1.1"
    assert headers["Authorization"] == "Bearer key"
    assert headers["Accept-Encoding"] == "identity"
    assert "Authorization" not in heads_of(str)[1]


def test_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", refusing_url())
    assert asyncio.run(read_from(answering(PAGE))) == "m"


@pytest.mark.parametrize(
    ("body", "engine", "version", "model"),
    [
        (b'{"version": "0.32.0"}', "vllm", "0.32.0", None),
        (b'{"version": "1", "model_path": "m"}', "vllm", "1", None),
        (b'{"build_info": "b9-abc"}', "llamacpp", "b9-abc", None),
        (b'{"build_info": "b9", "model_path": "/m/8b.gguf"}', "llamacpp", "b9", "/m/8b.gguf"),
        (b'{"build_info": "b9", "model_path": ["m"]}', "llamacpp", "b9", None),
        (b'{"version": 3}', "sglang", None, None),
        (b"[" * 100_000, None, None, None),
        (b"[]", None, None, None),
        (b'{"version": "' + b"9" * 5000 + b'"}', "outdraft", "9" * 100, None),
    ],
)
def test_what_a_server_says_of_itself(
    body: bytes, engine: str | None, version: str | None, model: str | None
) -> None:
    async def ask() -> About:
        async with serving(answering(body)) as url, open_session() as session:
            return await fetch_about(session, url, engine, 5.0)

    assert asyncio.run(ask()) == About(version, model)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://h:8000/metrics", "http://h:8000/metrics"),
        ("http://user:secret@h:8000", "http://***@h:8000"),
        ("http://user:sec/ret@h", "http://***@h"),
        ("http://user:sec?ret@h", "http://***@h"),
        ("http://h/m?token=secret", "http://h/m?***"),
        ("user:secret@h:8000", "***@h:8000"),
        ("dns://u:secret@name:80", "dns://***@name:80"),
        ("", ""),
    ],
)
def test_what_is_shown_of_an_address(url: str, shown: str) -> None:
    assert redacted(url) == shown


@given(st.text(st.characters(codec="ascii")), st.text(st.characters(codec="ascii")))
def test_no_password_is_ever_shown(user: str, password: str) -> None:
    assert "qZ7qZ7" not in redacted(f"http://{user}qZ7qZ7:{password}qZ7qZ7@host/x")


@pytest.mark.parametrize(
    "url",
    ["http://h", "http://h/", "http://h/v1", "http://h/v1/chat/completions", "http://h/metrics"],
)
def test_the_page_of_a_server(url: str) -> None:
    assert page_url(url) == "http://h/metrics"
    assert page_url(url, "/version") == "http://h/version"
    assert page_url(f"{url}?a=b") == "http://h/metrics?a=b"


def test_fifty_bad_ones_hold_nobody_up() -> None:
    bad = [never, dripping, answering(b"x" * (10 << 20)), answering(b"\0" * 99), closing]

    async def ask() -> tuple[float, list[object]]:
        async with open_session() as session, asyncio.TaskGroup() as tasks:
            stop = asyncio.Event()
            urls: list[str] = []

            async def run(write: Writing) -> None:
                async with serving(write) as url:
                    urls.append(url)
                    await stop.wait()

            for number in range(50):
                tasks.create_task(run(bad[number % len(bad)]))
            good = tasks.create_task(run(answering(PAGE)))
            while len(urls) < 51:
                await asyncio.sleep(0.01)
            good_url = urls[-1]
            asked = [asyncio.create_task(fetch_reading(session, url, 2.0)) for url in urls[:-1]]
            start = time.monotonic()
            reading = await fetch_reading(session, good_url, 2.0)
            seconds = time.monotonic() - start
            assert reading.model == "m"
            results = await asyncio.gather(*asked, return_exceptions=True)
            stop.set()
            await good
        return seconds, results

    seconds, results = asyncio.run(ask())
    assert all(isinstance(each, BackendError) for each in results), results
    assert seconds < 1.9, "the slow ones took 2 s"

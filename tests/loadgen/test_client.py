"""One request against a server that behaves, or does not."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from outdraft.loadgen.client import Client, Timeouts
from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.records import Record
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url

from .plans import closed

QUICK = Script(ttft_s=0.005, tpot_s=0.001)
SHORT = Timeouts(connect_s=5, first_s=0.3, gap_s=0.3, total_s=20)


def ask(
    url: str,
    requests: list[Request] | None = None,
    timeouts: Timeouts | None = None,
    **options: Any,
) -> list[Record]:
    async def one_by_one() -> list[Record]:
        async with Client(Endpoint(url, **options), timeouts) as client:
            return [await client.send(each) for each in requests or closed(1)]

    return asyncio.run(one_by_one())


def test_a_record() -> None:
    with fake_server(Script(ttft_s=0.03, tpot_s=0.01, k=3, acceptance=1.0)) as url:
        [record] = ask(url, closed(1, max_tokens=9))
    assert record.ok
    assert record.error is None
    assert (record.prompt_id, record.category, record.temperature) == ("p0", "chat", 0.0)
    assert (record.arm, record.block, record.index) == ("off", 0, 0)
    assert (record.prompt_tokens, record.completion_tokens, record.cached_tokens) == (4, 9, 0)
    assert record.finish_reason == "length"
    assert len(record.chunk_ns) == 3  # 1 + 4 + 4 tokens
    assert record.text is not None
    assert len(record.text.split()) == 9
    assert record.acceptance is not None
    assert (record.acceptance.num_drafts, record.acceptance.rate) == (2, 1.0)
    assert record.sent_ns is not None
    assert record.first_ns is not None
    assert record.scheduled_ns <= record.sent_ns < record.first_ns < (record.last_ns or 0)
    assert record.ttft_ns is not None
    assert 0.028 < record.ttft_ns / 1e9 < 1
    assert record.tpot_ns is not None
    assert 0.007 < record.tpot_ns / 1e9 < 0.5


@pytest.mark.parametrize(("dialect", "rate"), [("vllm", 1.0), ("sglang", 1.0), ("llamacpp", 1.0)])
def test_acceptance_as_each_engine_writes_it(dialect: str, rate: float) -> None:
    script = Script(ttft_s=0, tpot_s=0, k=3, acceptance=1.0)
    with fake_server(script, dialect=dialect) as url:
        [record] = ask(url, closed(1, max_tokens=9))
    assert record.acceptance is not None
    assert record.acceptance.rate == rate


def test_latency_counts_from_the_time_it_was_due() -> None:
    async def late(url: str) -> Record:
        async with Client(Endpoint(url)) as client:
            return await client.send(closed(1)[0], scheduled_ns=1)

    with fake_server(QUICK) as url:
        record = asyncio.run(late(url))
    assert record.scheduled_ns == 1
    assert record.lag_ns == (record.sent_ns or 0) - 1


def test_text_is_left_out_when_it_is_not_wanted() -> None:
    async def without(url: str) -> Record:
        async with Client(Endpoint(url), keep_text=False) as client:
            return await client.send(closed(1)[0])

    with fake_server(QUICK) as url:
        record = asyncio.run(without(url))
    assert record.ok
    assert record.text is None


def test_optional_fields_are_left_out_once_refused() -> None:
    refused = ("return_spec_tokens_details", "ignore_eos")
    with FakeServer(QUICK, refused_fields=refused) as server:

        async def three() -> tuple[list[Record], set[str]]:
            async with Client(Endpoint(server.url)) as client:
                both = await asyncio.gather(*(client.send(each) for each in closed(2)))
                return [*both, await client.send(closed(1)[0])], client.refused

        records, dropped = asyncio.run(three())
    assert [record.error for record in records] == [None] * 3
    assert dropped == set(refused)
    assert all("include_metrics" in body for body in server.bodies)
    assert not any(name in body for body in server.bodies for name in refused)


def test_a_field_that_is_not_optional_is_an_error() -> None:
    with fake_server(QUICK, refused_fields=("top_k",)) as url:
        [record] = ask(url, extra={"top_k": 1})
    assert record.error == "http 400: unknown field top_k"


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        ("http_500", "http 500: this was planned"),
        ("http_503", "http 503: this was planned"),
        ("cut", "stream ended early"),
        ("ends_early", "stream ended early"),
        ("malformed", 'malformed event: {"choices": [{"delta"'),
        ("error_event", "server error: this was planned"),
        ("hang", "timeout waiting for the first token"),
        ("stall", "timeout between chunks"),
        ("no_usage", "no token counts"),
    ],
)
def test_failures(failure: str, error: str) -> None:
    """The one in the middle fails; the others do not notice."""
    with fake_server(QUICK, failures={failure: 2}) as url:
        records = ask(url, closed(3), SHORT)
    assert [record.error for record in records] == [None, error, None]
    assert records[1].sent_ns is not None
    assert not records[1].ok


def test_a_connection_that_is_lost_before_the_answer() -> None:
    with fake_server(QUICK, failures={"reset": 2}) as url:
        records = ask(url, closed(3))
    assert records[1].error in ("disconnected", "connection lost: reset by the server")
    assert records[0].ok
    assert records[2].ok


def test_times_so_far_are_kept_with_an_error() -> None:
    with fake_server(QUICK, failures={"cut": 1}) as url:
        [record] = ask(url, closed(1, max_tokens=8))
    assert record.error == "stream ended early"
    assert record.first_ns is not None
    assert record.chunk_ns


def test_nobody_is_there() -> None:
    [record] = ask(refusing_url())
    assert record.error == "refused"
    [record] = ask("http://no-such-host.invalid")
    assert record.error == "unknown host"


def test_the_total_time() -> None:
    with fake_server(Script(ttft_s=0.001, tpot_s=0.05)) as url:
        limits = Timeouts(first_s=10, gap_s=5, total_s=0.2)
        [record] = ask(url, closed(1, max_tokens=100), limits)
    assert record.error == "timeout in total"
    assert 1 <= len(record.chunk_ns) < 50


@contextmanager
def saying(answer: bytes, *, closes: bool = True, connections: int = 1) -> Iterator[str]:
    """A server that says this to everybody, and hangs up when it is asked twice."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(10)

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)
                if not closes:
                    connection.recv(65536)

        threads = [threading.Thread(target=serve) for _ in range(connections)]
        for thread in threads:
            thread.start()
        yield "http://{}:{}".format(*listening.getsockname())
        for thread in threads:
            thread.join()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
WHOLE = (
    b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\ndata: [DONE]\n\n'
)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"SSH-2.0-OpenSSH_9.9\r\n", "not http"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            "not a stream",
        ),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 5\r\n\r\n<p>no", "http 502"),
        (b"HTTP/1.1 307 Moved\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "http 307"),
        (HEAD + b"Content-Length: 5\r\n\r\ndata:", "stream ended early"),
        (HEAD + b"Content-Length: 500\r\n\r\ndata:", "stream ended early"),
        (HEAD + b"\r\ndata: x\n\n", "malformed event"),
        (HEAD + b"\r\n" + b"data: " + b"x" * (5 << 20), "event too long"),
        (HEAD + b"\r\n" + WHOLE, None),
    ],
)
def test_other_answers(answer: bytes, error: str | None) -> None:
    with saying(answer) as url:
        [record] = ask(url)
    assert (record.error or "").partition(":")[0] == (error or "")


def test_a_stream_that_is_not_closed_after_its_last_event() -> None:
    with saying(HEAD + b"\r\n" + WHOLE, closes=False) as url:
        [record] = ask(url)
    assert record.error is None


def test_a_connection_to_llama_cpp_is_used_once() -> None:
    """It promises to keep it and hangs up, also after an answer that is there at once."""
    length = f"Server: llama.cpp\r\nContent-Length: {len(WHOLE)}\r\n\r\n".encode()
    with saying(HEAD + length + WHOLE, closes=False, connections=3) as url:
        records = ask(url, closed(3))
    assert [each.error for each in records] == [None] * 3

"""The engine's thread and its readers: who leaves, who is slow, what breaks, how it ends."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from outdraft import Engine, load_engine
from outdraft.server.serve import Server
from outdraft.testing.tiny_models import tiny_model
from tests.server.conftest import NGRAM
from tests.server.serving import serving
from tests.server.valve import Valve
from tests.server.wire import (
    CHAT,
    COMPLETIONS,
    PROMPT,
    Wire,
    asked,
    error_of,
    events_of,
    until,
)

CONTEXT = 8192  # a text as long as that is still being written when a test is done with it
LONG: dict[str, Any] = {"prompt": PROMPT, "max_tokens": CONTEXT, "ignore_eos": True}
ASSISTANT = 319  # the token of that word
SHORT: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 8, "ignore_eos": True, "seed": 1}


@pytest.fixture(scope="module")
def long_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("long") / "llama", "llama", context=CONTEXT)


Make = Callable[..., Engine]


@pytest.fixture
def make(long_folder: Path) -> Make:
    def made(**options: Any) -> Engine:
        return load_engine(str(long_folder), NGRAM, kv_cache_bytes=16 << 20, **options)

    return made


@contextmanager
def asking(engine: Engine, **options: Any) -> Iterator[tuple[Wire, Server]]:
    with serving(engine, **options) as (url, server):
        wire = Wire(url)
        with wire.client:
            yield wire, server


def num_open(server: Server) -> int:
    return server._service.loop.num_open


def running(wire: Wire) -> tuple[float, float]:
    metrics = wire.metrics()
    return metrics.value("vllm:num_requests_running"), metrics.value("vllm:num_requests_waiting")


def num_aborted(wire: Wire) -> float:
    return wire.metrics().value("vllm:request_success_total", finished_reason="abort")


def address(wire: Wire) -> tuple[str, int]:
    host, _, port = wire.url.removeprefix("http://").partition(":")
    return host, int(port)


def call(wire: Wire, body: dict[str, Any], path: str = COMPLETIONS, size: int = 0) -> socket.socket:
    """A request on a connection of its own, not yet read; `size` of the receive buffer."""
    caller = socket.socket()
    if size:
        caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    caller.settimeout(60)
    caller.connect(address(wire))
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    caller.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return caller


def is_gone(wire: Wire) -> bool:
    """Nobody listens there any more."""
    try:
        socket.create_connection(address(wire)).close()
    except ConnectionRefusedError:
        return True
    return False


# ------------------------------------------------------------------ a full queue


def test_a_full_queue_says_when_to_come_again(make: Make) -> None:
    engine = make()
    valve = Valve(engine)
    with asking(engine, max_open=3) as (wire, server), ThreadPoolExecutor() as pool:
        with valve.closed():
            first = pool.submit(wire.complete, **SHORT, n=2)
            until(lambda: num_open(server) == 2, "the first one is open")
            for stream in (False, True):  # before its headers are sent a stream can be refused too
                answer = wire.client.post(COMPLETIONS, json={**SHORT, "n": 2, "stream": stream})
                error = error_of(answer, 429)
                assert (error["type"], error["code"]) == ("rate_limit_error", "queue_full")
                assert int(answer.headers["retry-after"]) >= 1
            last = pool.submit(wire.complete, **SHORT)  # there is room for one
            until(lambda: num_open(server) == 3, "the last one is open")
            assert error_of(wire.client.post(COMPLETIONS, json=SHORT), 429)
            assert wire.client.get("/health").status_code == 200
        text = last.result()["choices"][0]["text"]
        assert first.result()["choices"][0]["text"] == text
        assert wire.complete(**SHORT, n=3)["choices"][0]["text"] == text
        assert num_open(server) == 0


# ------------------------------------------------------------------ who leaves


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_frees_everything(make: Make, stream: bool) -> None:
    with asking(make()) as (wire, server):
        caller = call(wire, {**LONG, "n": 3, "stream": stream})
        until(lambda: running(wire) == (3, 0), "its texts are being written")
        assert not wire.metrics().is_idle
        if stream:
            assert caller.recv(100).startswith(b"HTTP/1.1 200")
        caller.close()
        until(lambda: wire.metrics().is_idle, "its blocks are free")
        assert (num_aborted(wire), num_open(server)) == (3, 0)  # none ended by itself
        assert wire.complete(**SHORT)["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("stream", [False, True])
def test_who_leaves_the_queue(make: Make, stream: bool) -> None:
    with asking(make(max_num_seqs=1)) as (wire, server):
        writing = call(wire, LONG)
        until(lambda: running(wire) == (1, 0), "the first one is being written")
        waiting = call(wire, {**LONG, "stream": stream})
        until(lambda: running(wire) == (1, 1), "the second one waits")
        waiting.close()
        until(lambda: running(wire) == (1, 0), "the second one is forgotten")
        assert (num_aborted(wire), num_open(server)) == (1, 1)
        writing.close()
        until(lambda: wire.metrics().is_idle, "nothing is left of the first one")
        assert wire.complete(**SHORT)["usage"]["completion_tokens"] == 8


def test_who_leaves_is_gone_after_one_step(make: Make) -> None:
    """The step it was in still ends; there is no second one with it."""
    engine = make()
    valve = Valve(engine)
    with asking(engine) as (wire, server):
        with valve.closed():
            caller = call(wire, LONG)
            until(lambda: running(wire) == (1, 0), "its first step has begun")
            caller.close()
            until(lambda: num_open(server) == 0, "the server knows that it has left")
        until(lambda: wire.metrics().is_idle, "its blocks are free")
        metrics = wire.metrics()
        assert metrics.value("vllm:generation_tokens_total") == 1
        assert metrics.value("vllm:iteration_tokens_total_count") == 1


# ------------------------------------------------------------------ who is slow


def test_a_slow_reader_holds_nobody(make: Make) -> None:
    """Megabytes that nobody reads: its texts are written to the end, others come and go."""
    prompt = [ASSISTANT] * 2000  # its echo is 18 kB, in each of 256 texts
    body = {"prompt": [prompt] * 4, "n": 64, "echo": True, "stream": True, "max_tokens": 3,
            "ignore_eos": True}  # fmt: skip
    with asking(make()) as (wire, server), call(wire, body, size=4096) as reader:
        until(lambda: running(wire)[0], "its texts are being written")
        assert wire.complete(**SHORT)["usage"]["completion_tokens"] == 8
        until(lambda: wire.metrics().is_idle, "they are written")
        assert wire.metrics().value("vllm:generation_tokens_total") == 3 * 256 + 8
        assert num_open(server) == 0
        assert wire.complete(**SHORT)["usage"]["completion_tokens"] == 8
        # All of it is kept, for when the reader comes to it.
        received = bytearray()
        while not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            part = reader.recv(1 << 20)
            assert part, "the connection was closed"
            received += part
        assert len(received) > 4 << 20  # more than the system's buffers hold
        assert received.count(b'"finish_reason":"length"') == 256


# ------------------------------------------------------------------ what breaks


def test_when_the_engine_breaks_everybody_is_told(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """Those being written, those that wait, whole and in pieces; and then the server ends."""
    engine = make(max_num_seqs=2)
    valve = Valve(engine)
    with asking(engine) as (wire, server), ThreadPoolExecutor() as pool:
        with valve.closed():
            bodies = [{**SHORT, "stream": stream} for stream in (False, True) * 3]
            answers: list[Future[httpx.Response]] = [
                pool.submit(wire.client.post, COMPLETIONS, json=body) for body in bodies
            ]
            until(lambda: num_open(server) == 6, "all six are open")
            assert server.failure is None
            valve.break_with(RuntimeError("the device is on fire"))
            for body, future in zip(bodies, answers, strict=True):
                answer = future.result()
                if body["stream"]:
                    error = events_of(answer.text)[-1]["error"]
                else:
                    error = error_of(answer, 500)
                assert (error["type"], error["code"]) == ("server_error", "engine_stopped")
                assert "RuntimeError: the device is on fire" in error["message"]
        until(lambda: is_gone(wire), "the server has ended")
        assert server.failure == "RuntimeError: the device is on fire"
    assert "Traceback" in capfd.readouterr().err


def test_half_a_stream_tells_that_it_is_broken(
    make: Make, capfd: pytest.CaptureFixture[str]
) -> None:
    """Some text, then an error event instead of an end."""
    engine = make()
    valve = Valve(engine)
    with asking(engine) as (wire, server):
        with wire.client.stream("POST", COMPLETIONS, json={**LONG, "stream": True}) as answer:
            lines = answer.iter_lines()
            beginning = [next(lines) for _ in range(9)]
            valve.break_with(RuntimeError("the device is on fire"))
            events = events_of("\n".join([*beginning, *lines, ""]))
        *chunks, last = events
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
        assert last["error"]["code"] == "engine_stopped"
        until(lambda: is_gone(wire), "the server has ended")
        assert server.failure is not None
    assert "on fire" in capfd.readouterr().err


# ------------------------------------------------------------------ how it ends


def test_draining(make: Make) -> None:
    """The first signal: what is open is finished, nothing new is taken, then it ends."""
    engine = make()
    valve = Valve(engine)
    told: list[int] = []
    with asking(engine, on_drain=told.append) as (wire, server), ThreadPoolExecutor() as pool:
        expected = wire.complete(**SHORT)["choices"][0]["text"]
        with valve.closed():
            whole = pool.submit(wire.complete, **SHORT, n=2)
            pieces = pool.submit(wire.events, COMPLETIONS, **SHORT)
            until(lambda: num_open(server) == 3, "both are open")
            server.handle_exit(signal.SIGTERM, None)
            until(lambda: told == [3], "it drains")
            for path in (COMPLETIONS, CHAT):
                answer = wire.client.post(path, json=asked(path, {}))
                error = error_of(answer, 503)
                assert error["code"] == "shutting_down"
                assert int(answer.headers["retry-after"]) >= 1
            error_of(wire.client.get("/health"), 503)  # whoever balances the load looks here
            assert wire.client.get("/metrics").status_code == 200
        assert whole.result()["choices"][0]["text"] == expected
        assert "".join(event["choices"][0]["text"] for event in pieces.result()) == expected
        until(lambda: is_gone(wire), "the server has ended")
        assert server.failure is None


@pytest.mark.parametrize("stream", [False, True])
def test_what_takes_longer_than_the_drain(make: Make, stream: bool) -> None:
    """It is told so, not just cut off."""
    with asking(make(), drain_s=0.0) as (wire, server), ThreadPoolExecutor() as pool:
        future = pool.submit(wire.client.post, COMPLETIONS, json={**LONG, "stream": stream})
        until(lambda: running(wire) == (1, 0), "it is being written")
        server.handle_exit(signal.SIGTERM, None)
        answer = future.result()
        error = events_of(answer.text)[-1]["error"] if stream else error_of(answer, 503)
        assert error["code"] == "shutting_down"
        until(lambda: is_gone(wire), "the server has ended")
        assert server.failure is None


def test_the_second_signal_ends_it_at_once(make: Make) -> None:
    with asking(make()) as (wire, server), ThreadPoolExecutor() as pool:
        future = pool.submit(wire.events, COMPLETIONS, **LONG)
        until(lambda: running(wire) == (1, 0), "it is being written")
        for _ in range(2):
            server.handle_exit(signal.SIGINT, None)
        assert future.result()[-1]["error"]["code"] == "shutting_down"
        until(lambda: is_gone(wire), "the server has ended")
        assert server.failure is None


def test_an_idle_server_ends_at_once(make: Make) -> None:
    with asking(make()) as (wire, server):
        server.handle_exit(signal.SIGTERM, None)
        until(lambda: is_gone(wire), "the server has ended")
        assert server.failure is None

"""A server with OpenAI's API, scripted timings and planted truths: for tests, here and yours.

    with fake_server(Script(ttft_s=0.02, tpot_s=0.005, k=4, speedup=1.3)) as url:
        ...

It computes nothing and imports neither torch nor the engine. `fake_process` runs it in a process
of its own, for loads that a thread beside the client would disturb.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self, get_args

from outdraft.errors import unknown_choice
from outdraft.testing.fake_answers import (
    Dialect,
    Piece,
    event,
    halved,
    pieces_of,
    whole_answer,
)  # fmt: skip
from outdraft.testing.fake_http import HttpConnection
from outdraft.testing.fake_metrics import FakeMetrics
from outdraft.testing.fake_script import Asked, Played, Script

Failure = Literal[
    "http_500",
    "http_503",
    "reset",  # the connection is lost before any answer
    "cut",  # ... and half-way through one
    "ends_early",  # a stream that ends in good order, with half of the answer
    "malformed",  # an event that is no JSON
    "error_event",
    "hang",  # no answer
    "stall",  # half of one
    "no_usage",
]
_STALL_S = 3600.0
# The field by which a request asks for its acceptance; llama-server tells it unasked.
_ASKS_FOR_METRICS = {"vllm": "include_metrics", "sglang": "return_spec_tokens_details"}


class FakeServer:
    """`with FakeServer(...) as server: server.url`, in a thread.

    `failures` says of which kind every n-th request fails: `{"http_503": 10}`. `refused_fields`
    are answered with 400 and their name. `fast` makes an answer once for each temperature and
    length and sends it to everybody: prompts and noise make no difference any more, but it serves
    thousands a second. `whole_answers` serves requests that want no stream, too. `pages` are
    further paths and what JSON is there.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        failures: Mapping[Failure, int] | None = None,
        refused_fields: Collection[str] = (),
        dialect: Dialect = "vllm",
        kv_slots: int = 64,
        fast: bool = False,
        whole_answers: bool = False,
        model: str = "fake",
        pages: Mapping[str, Any] | None = None,
        port: int = 0,
        new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
    ) -> None:
        self._script = script or Script()
        self._failures = dict(failures or {})
        for name in self._failures.keys() - set(get_args(Failure)):
            raise unknown_choice("failure", name, get_args(Failure))
        self._refused_fields = refused_fields
        self._dialect: Dialect = dialect
        self._fast: dict[tuple[Any, ...], tuple[list[Piece], Played]] | None = {} if fast else None
        self._whole_answers = whole_answers
        self._model = model
        self._pages = dict(pages or {})
        self._new_event_loop = new_event_loop
        self._wanted_port = port
        self._connections: set[HttpConnection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self.metrics = FakeMetrics(k=self._script.k, kv_slots=kv_slots)
        self.bodies: list[dict[str, Any]] = []  # of the requests, as they came; not when fast
        self.serve_metrics = True
        self.url = ""

    # ------------------------------------------------------------ its life

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self.serve, args=(ready.set,), name="fake-server", daemon=True
        )
        self._thread.start()
        if not ready.wait(10):
            raise RuntimeError("the fake server did not come up within 10 seconds")
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        assert self._thread is not None
        self._thread.join(10)

    def serve(self, on_ready: Callable[[], None]) -> None:
        """Until `stop` is called."""
        with asyncio.Runner(loop_factory=self._new_event_loop) as runner:
            runner.run(self._serve(on_ready))

    def stop(self) -> None:
        """The server dies: open answers are cut, connections refused from now on."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    def refuse(self) -> None:
        """New connections are refused from now on; those that are there go on."""
        if self._loop is not None and self._server is not None:
            self._loop.call_soon_threadsafe(self._server.close)

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._server = await self._loop.create_server(
            lambda: HttpConnection(self._respond, self._connections),
            "127.0.0.1",
            self._wanted_port,
            backlog=4096,
        )
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        on_ready()
        await self._ended.wait()
        await asyncio.sleep(0)  # connections notice that they are closed

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        self._ended.set()

    # ------------------------------------------------------------ requests

    def _respond(self, connection: HttpConnection, method: str, path: str, body: bytes) -> None:
        if method == "POST" and path == "/v1/chat/completions":
            try:
                self._chat(connection, json.loads(body))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                connection.reply_json(400, _error(f"cannot read the request: {error}"))
        elif path == "/health":
            connection.reply(200, "text/plain", b"")
        elif path == "/metrics" and self.serve_metrics:
            metrics = self.metrics
            page = metrics.render_sglang() if self._dialect == "sglang" else metrics.render()
            connection.reply(200, "text/plain; version=0.0.4", page)
        elif path == "/v1/models":
            connection.reply_json(200, {"object": "list", "data": [{"id": self._model}]})
        elif path in self._pages:
            connection.reply_json(200, self._pages[path])
        else:
            connection.reply_json(404, _error(f"{method} {path} is not served here"))

    def _chat(self, connection: HttpConnection, body: dict[str, Any]) -> None:
        for field in self._refused_fields:
            if field in body:
                return connection.reply_json(400, _error(f"unknown field {field}", field))
        if not body.get("stream") and not self._whole_answers:
            return connection.reply_json(400, _error("only streams are served", "stream"))
        count = self.metrics.num_requests
        self.metrics.num_requests += 1
        failure = next(
            (kind for kind, every in self._failures.items() if every and (count + 1) % every == 0),
            None,
        )
        if failure == "reset":
            return connection.abort()
        if failure in ("http_500", "http_503"):
            return connection.reply_json(int(failure[5:]), _error("this was planned"))
        self.metrics.num_running += 1
        if failure == "hang":
            return connection.hang(self._ended_stream)
        if not body.get("stream"):
            return self._whole(connection, body, count)
        pieces, ends = self._failing(self._pieces(body, count, failure), failure)
        return connection.play(pieces, self._ended_stream, ends=ends)

    def _pieces(self, body: dict[str, Any], count: int, failure: Failure | None) -> list[Piece]:
        options = body.get("stream_options") or {}
        with_usage = bool(options.get("include_usage")) and failure != "no_usage"
        asked = self._asked(body, count)
        key = (asked.temperature, asked.max_tokens, asked.ignore_eos, with_usage)
        num_prompt_tokens = _num_tokens(asked.prompt)
        if self._fast is not None and key in self._fast:
            pieces, played = self._fast[key]
            self.metrics.observe(played, num_prompt_tokens)
            return pieces
        played = self._script.play(asked)
        self.metrics.observe(played, num_prompt_tokens)
        pieces = pieces_of(
            asked,
            played,
            k=self._script.k,
            dialect=self._dialect,
            with_usage=with_usage,
            with_metrics=self._wants_metrics(body),
            num_prompt_tokens=num_prompt_tokens,
        )
        if self._fast is None:
            self.bodies.append(body)
        else:
            self._fast[key] = pieces, played
        return pieces

    def _whole(self, connection: HttpConnection, body: dict[str, Any], count: int) -> None:
        asked = self._asked(body, count)
        played = self._script.play(asked)
        tokens = _num_tokens(asked.prompt)
        self.metrics.observe(played, tokens)
        k = self._script.k if self._wants_metrics(body) else 0
        answer = whole_answer(asked, played, k=k, dialect=self._dialect, num_prompt_tokens=tokens)
        connection.reply_json_at(played.at_s[-1], answer, self._ended_stream)

    def _asked(self, body: dict[str, Any], count: int) -> Asked:
        return Asked(
            prompt="\n".join(each["content"] for each in body["messages"]),
            temperature=float(body.get("temperature", 1.0)),
            max_tokens=int(body.get("max_tokens") or 16),
            seed=int(body.get("seed") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            count=count,
            running=self.metrics.num_running,
        )

    def _wants_metrics(self, body: dict[str, Any]) -> bool:
        field = _ASKS_FOR_METRICS.get(self._dialect)
        return field is None or bool(body.get(field))

    def _failing(self, pieces: list[Piece], failure: Failure | None) -> tuple[list[Piece], bool]:
        """What is sent, and whether the stream ends as it should."""
        if failure in (None, "no_usage"):
            return pieces, True
        half = halved(pieces)
        at = half[-1][0]
        if failure == "cut":
            return half, False
        if failure == "malformed":
            return [*half, (at, b'data: {"choices": [{"delta"\n\n'), *pieces[len(half) :]], True
        if failure == "error_event":
            return [*half, (at, event(_error("this was planned")))], True
        if failure == "stall":
            return [*half, (at + _STALL_S, b"")], True
        return half, True

    def _ended_stream(self, whole: bool) -> None:
        self.metrics.num_running -= 1


@contextmanager
def fake_server(script: Script | None = None, **options: Any) -> Iterator[str]:
    """The URL of a fake server that runs in a thread; `options` are those of FakeServer."""
    with FakeServer(script, **options) as server:
        yield server.url


def refusing_url() -> str:
    """Where nobody listens: connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
    return f"http://{host}:{port}"


def _num_tokens(prompt: str) -> int:
    return len(prompt.split()) or 1


def _error(message: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "fake", "param": param, "code": None}}

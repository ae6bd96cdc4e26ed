"""A server with OpenAI's API, scripted timings and planted effects, for your tests too.

    with fake_server(Script(ttft_s=0.02, tpot_s=0.005, k=4, speedup=1.3)) as url:
        ...

It computes nothing and imports neither torch nor the engine. `fake_process` runs it in a process
of its own, for loads that a thread beside the client would disturb.
"""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal, Self, get_args

from outdraft.errors import unknown_choice
from outdraft.testing.fake_answers import (
    Dialect,
    FakeMetrics,
    TimedBytes,
    event,
    num_prompt_tokens,
    reported_acceptance,
    stream_of,
    whole_answer,
)
from outdraft.testing.fake_http import HttpConnection, chunked_response, json_response, response
from outdraft.testing.fake_script import Script, ScriptedAnswer, ScriptedRequest

Failure = Literal[
    "http_500",
    "http_503",
    "reset",  # the connection is lost before any answer
    "cut",  # the connection is lost half-way through the answer
    "ends_early",  # a stream that ends in good order, with half of the answer
    "malformed",  # an event that is not JSON
    "error_event",
    "hang",  # no answer
    "stall",  # half an answer, then nothing
    "no_usage",
]
_STALL_S = 3600.0
# The field by which a request asks for its acceptance; llama-server reports it always.
_ASKS_FOR_ACCEPTANCE = {"vllm": "include_metrics", "sglang": "return_spec_tokens_details"}


@dataclass(eq=False)
class FakeServer:
    """`with FakeServer(...) as server: server.url`, in a thread.

    `failures` says how every n-th request fails: `{"http_503": 10}`. Requests with one of the
    `refused_fields` get a 400 that names it. `fast` makes one answer for each temperature and
    length and sends it to all requests, without noise and whatever the prompt: it then serves
    thousands per second. `whole_answers` serves requests without a stream, too. `pages` are
    further paths and their JSON. `serve_tokenize`: /tokenize in vLLM's form; words are tokens.
    """

    script: Script = field(default_factory=Script)
    _: KW_ONLY
    failures: Mapping[Failure, int] = field(default_factory=dict)
    refused_fields: Collection[str] = ()
    dialect: Dialect = "vllm"
    kv_slots: int = 64
    fast: bool = False
    whole_answers: bool = False
    serve_tokenize: bool = False
    model: str = "fake"
    pages: Mapping[str, Any] = field(default_factory=dict)
    port: int = 0
    new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop

    def __post_init__(self) -> None:
        for name in self.failures.keys() - set(get_args(Failure)):
            raise unknown_choice("failure", name, get_args(Failure))
        self._cache: dict[tuple[Any, ...], tuple[list[TimedBytes], ScriptedAnswer]] = {}
        models = {"object": "list", "data": [{"id": self.model}]}
        self._pages = {"/v1/models": models, **self.pages}
        self._connections: set[HttpConnection] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: asyncio.Server | None = None
        self._thread: threading.Thread | None = None
        self.metrics = FakeMetrics(k=self.script.k, kv_slots=self.kv_slots)
        self.bodies: list[dict[str, Any]] = []  # of the requests so far; not kept when fast
        self.headers: list[Mapping[str, str]] = []  # of all requests so far, names in lower case
        self.serve_metrics = True
        self.url = ""

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
        """Serves in this thread until `stop` is called."""
        with asyncio.Runner(loop_factory=self.new_event_loop) as runner:
            runner.run(self._serve(on_ready))

    def stop(self) -> None:
        """Cuts open answers and refuses connections from now on."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close)

    def refuse(self) -> None:
        """Refuses new connections from now on; open ones continue."""
        if self._loop is not None and self._server is not None:
            self._loop.call_soon_threadsafe(self._server.close)

    async def _serve(self, on_ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._server = await self._loop.create_server(
            lambda: HttpConnection(self._respond, self._connections),
            "127.0.0.1",
            self.port,
            backlog=4096,
        )
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        on_ready()
        await self._ended.wait()
        await asyncio.sleep(0)  # lets connections notice that they are closed

    def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        self._ended.set()

    def _respond(self, connection: HttpConnection, method: str, path: str, body: bytes) -> None:
        if not self.fast:
            self.headers.append(connection.headers)
        if method == "POST" and path in ("/v1/chat/completions", "/v1/completions"):
            try:
                self._write(connection, json.loads(body))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                connection.send(_error(400, f"cannot read the request: {error}"))
        elif method == "POST" and path == "/tokenize" and self.serve_tokenize:
            connection.send(json_response(200, {"count": len(json.loads(body)["prompt"].split())}))
        elif path == "/health":
            connection.send(response(200, "text/plain", b""))
        elif path == "/metrics" and self.serve_metrics:
            page = self.metrics.render(self.dialect)
            connection.send(response(200, "text/plain; version=0.0.4", page))
        elif path in self._pages:
            connection.send(json_response(200, self._pages[path]))
        else:
            connection.send(_error(404, f"{method} {path} is not served here"))

    def _write(self, connection: HttpConnection, body: dict[str, Any]) -> None:
        for name in self.refused_fields:
            if name in body:
                return connection.send(_error(400, f"unknown field {name}", name))
        if not body.get("stream") and not self.whole_answers:
            return connection.send(_error(400, "only streams are served", "stream"))
        number = self.metrics.num_requests
        self.metrics.num_requests += 1
        failure = next(
            (kind for kind, every in self.failures.items() if every and (number + 1) % every == 0),
            None,
        )
        if failure == "reset":
            return connection.abort()
        if failure in ("http_500", "http_503"):
            return connection.send(_error(int(failure[5:]), "this was planned"))
        request = ScriptedRequest(
            prompt=_prompt_of(body),
            temperature=float(body.get("temperature", 1.0)),
            max_tokens=int(body.get("max_tokens") or 16),
            seed=int(body.get("seed") or 0),
            ignore_eos=bool(body.get("ignore_eos")),
            number=number,
            num_running=self.metrics.num_running + 1,
        )
        hangs = failure == "hang"
        pieces = [(_STALL_S, b"")] if hangs else self._answer(body, request, failure)
        self.metrics.num_running += 1
        return connection.play(pieces, self._request_ended, close=failure == "cut")

    def _request_ended(self) -> None:
        self.metrics.num_running -= 1

    def _answer(
        self, body: dict[str, Any], request: ScriptedRequest, failure: Failure | None
    ) -> list[TimedBytes]:
        is_stream = bool(body.get("stream"))
        options = body.get("stream_options") or {}
        with_usage = bool(options.get("include_usage")) and failure != "no_usage"
        asks = _ASKS_FOR_ACCEPTANCE.get(self.dialect)
        with_acceptance = asks is None or bool(body.get(asks))
        key = (request.temperature, request.max_tokens, request.ignore_eos, is_stream, with_usage,
               with_acceptance, failure, "messages" in body)  # fmt: skip
        if self.fast and key in self._cache:
            pieces, answer = self._cache[key]
        else:
            answer = self.script.play(request)
            acceptance = reported_acceptance(answer, self.script.k, self.dialect)
            fields = acceptance if with_acceptance else {}
            if is_stream:
                events = stream_of(
                    request,
                    answer,
                    with_usage=with_usage,
                    acceptance=fields,
                    is_chat="messages" in body,
                )
                pieces = chunked_response(_broken(events, failure), is_whole=failure != "cut")
            else:
                content = whole_answer(request, answer) | fields
                pieces = [(answer.at_s[-1], json_response(200, content))]
            if self.fast:
                self._cache[key] = pieces, answer
            else:
                self.bodies.append(body)
        self.metrics.observe(answer, num_prompt_tokens(request))
        return pieces


def _prompt_of(body: Mapping[str, Any]) -> str:
    if "messages" not in body:
        return str(body["prompt"])
    return "\n".join(each["content"] for each in body["messages"])


def _broken(events: list[TimedBytes], failure: Failure | None) -> list[TimedBytes]:
    """The events with the failure in their middle; at least one of them comes first."""
    if failure in (None, "no_usage"):
        return events
    size = max(1, (len(events) - 1) // 2)
    half, rest = events[:size], events[size:]
    at = half[-1][0]
    if failure == "malformed":
        return [*half, (at, b'data: {"choices": [{"delta"\n\n'), *rest]
    if failure == "error_event":
        return [*half, (at, event(_error_body("this was planned")))]
    if failure == "stall":
        return [*half, (at + _STALL_S, b"")]
    return half


@contextmanager
def fake_server(*script: Script, **options: Any) -> Iterator[str]:
    """The URL of a fake server that runs in a thread; `options` are those of FakeServer."""
    with FakeServer(*script, **options) as server:
        yield server.url


def refusing_url() -> str:
    """An address at which connections are refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
    return f"http://{host}:{port}"


def _error(status: int, message: str, param: str | None = None) -> bytes:
    return json_response(status, _error_body(message, param))


def _error_body(message: str, param: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "fake", "param": param, "code": None}}

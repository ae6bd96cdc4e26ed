"""Servers that somebody else runs: what each says of itself."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from outdraft.errors import BackendError
from outdraft.observe import RemoteServer, read_acceptance
from outdraft.observe import server as server_module
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import fake_server, refusing_url


@contextmanager
def server(pages: Mapping[str, object]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            self.send_response(404 if page is None else 200)
            self.end_headers()
            self.wfile.write(page.encode() if isinstance(page, str) else json.dumps(page).encode())

        def log_message(self, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}"
        finally:
            http.shutdown()


def models(owner: str) -> dict[str, object]:
    return {"data": [{"id": "m", "owned_by": owner}]}


LLAMACPP = {
    "/v1/models": models("llamacpp"),
    "/props": {"build_info": "b9-abc", "total_slots": 4},
    "/metrics": "llamacpp:spec_decode_num_drafts_total 2\n"
    "llamacpp:spec_decode_num_draft_tokens_total 9\n",
}


@pytest.mark.parametrize(
    ("pages", "engine", "version"),
    [
        (LLAMACPP, "llamacpp", "b9-abc"),
        ({"/v1/models": models("x"), "/props": {"total_slots": 4}}, "llamacpp", None),
        ({"/v1/models": models("vllm"), "/version": {"version": "0.32.0"}}, "vllm", "0.32.0"),
        ({"/v1/models": models("sglang"), "/server_info": {"version": "0.5"}}, "sglang", "0.5"),
        (
            {
                "/v1/models": models("outdraft"),
                "/version": {"version": "0.1.0"},
                "/metrics": "vllm:num_requests_running 0\noutdraft:rounds_total 0\n",
            },
            "outdraft",
            "0.1.0",
        ),
        ({"/v1/models": models("somebody")}, None, None),
        ({"/v1/models": models("vllm"), "/version": {"version": None}}, "vllm", None),
    ],
)
def test_it_says_what_it_is(
    pages: Mapping[str, object], engine: str | None, version: str | None
) -> None:
    with server(pages) as url:
        found = RemoteServer(f"{url}/v1/").identify()
    assert (found.engine, found.version, found.model) == (engine, version, "m")


@pytest.mark.parametrize(
    ("pages", "method"),
    [
        ({"/version": {"version": "0.1.0", "method": "suffix"}}, "suffix"),
        ({"/version": {"version": "0.32.0"}}, None),
        ({"/server_info": {"version": "0.5", "speculative_algorithm": "EAGLE3"}}, "eagle"),
        ({"/server_info": {"version": "0.5", "speculative_algorithm": None}}, None),
        ({}, None),
    ],
)
def test_it_says_how_it_proposes(pages: Mapping[str, object], method: str | None) -> None:
    with server(pages) as url:
        assert RemoteServer(url).method() == method


def test_counters_are_read_as_its_engine_counts() -> None:
    with server(LLAMACPP) as url:
        counts = read_acceptance(RemoteServer(url).metrics())
    assert counts is not None
    assert counts.num_draft_tokens == 9


def test_a_server_is_recognized_by_the_names_on_its_metrics() -> None:
    with fake_server(Script(k=2)) as url:
        assert str(RemoteServer(url).identify()) == "vllm"


def test_where_nobody_answers() -> None:
    with pytest.raises(BackendError, match="refused"):
        RemoteServer(refusing_url()).identify()
    assert RemoteServer(refusing_url()).metrics() == {}
    with (
        server({"/v1/models": {"detail": "no"}}) as url,
        pytest.raises(BackendError, match="OpenAI-compatible"),
    ):
        RemoteServer(url).identify()


@pytest.mark.parametrize(
    ("pages", "is_ready"),
    [
        ({"/health": ""}, True),
        ({"/v1/models": models("x")}, True),
        ({"/version": {}}, False),
    ],
)
def test_when_it_is_ready(pages: Mapping[str, object], is_ready: bool) -> None:
    with server(pages) as url:
        assert RemoteServer(url).is_ready() == is_ready
    assert not RemoteServer(refusing_url()).is_ready()


def test_what_speaks_no_http_is_no_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"220 mail\r\n")

        Thread(target=answer, daemon=True).start()
        assert RemoteServer(f"http://127.0.0.1:{other.getsockname()[1]}").metrics() == {}


@contextmanager
def forgetting(*statuses: int) -> Iterator[tuple[str, list[str]]]:
    """Answers each POST with the next status, the last one for ever."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(statuses[min(len(asked), len(statuses) - 1)])
            asked.append(self.path)
            self.end_headers()

        def log_message(self, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{http.server_port}", asked
        finally:
            http.shutdown()


def test_a_server_that_is_not_done_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_PAUSE_S", 0.001)
    with forgetting(400, 400, 200) as (url, asked):
        RemoteServer(url).forget("/flush_cache")
        assert asked == 3 * ["/flush_cache"]
    with forgetting(400) as (url, asked):
        with pytest.raises(BackendError, match=r"/flush_cache did not make it forget \(http 400\)"):
            RemoteServer(url).forget("/flush_cache")
        assert len(asked) == 20
    with forgetting(404) as (url, asked):
        with pytest.raises(BackendError, match=r"/forget did not make it forget \(http 404\)"):
            RemoteServer(url).forget()
        assert len(asked) == 1

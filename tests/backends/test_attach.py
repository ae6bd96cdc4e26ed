"""Servers that somebody else runs: what each says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from outdraft.backends.attach import Attached
from outdraft.backends.backend import Serving, Traffic
from outdraft.errors import BackendError, OptionError
from outdraft.speculation import OFF
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
    ],
)
def test_it_says_what_it_is(
    pages: Mapping[str, object], engine: str | None, version: str | None
) -> None:
    with server(pages) as url:
        found = Attached(f"{url}/v1/").identify()
    assert (found.engine, found.version, found.model) == (engine, version, "m")


def test_counters_are_read_as_its_engine_counts() -> None:
    with server(LLAMACPP) as url:
        attached = Attached(url)
        counts = attached.drafted(attached.metrics())
    assert counts is not None
    assert counts.num_draft_tokens == 9
    assert attached.drafted({"other:x_total": 1.0}) is None


def test_nothing_is_promised_and_nothing_started() -> None:
    with fake_server(Script(k=2)) as url:
        attached = Attached(url)
        assert attached.detect().version == "vllm", "by the names on its /metrics"
        assert attached.capabilities().methods == {"off"}
        [warning] = attached.preflight(Serving("x"), OFF, Traffic())
        assert url in warning
        with pytest.raises(OptionError, match="somebody else's"):
            attached.launch(Serving("x"), OFF, 1)


def test_where_nobody_answers() -> None:
    with pytest.raises(BackendError, match="refused"):
        Attached(refusing_url()).identify()
    with server({"/v1/models": {"detail": "no"}}) as url, pytest.raises(BackendError, match="list"):
        Attached(url).identify()

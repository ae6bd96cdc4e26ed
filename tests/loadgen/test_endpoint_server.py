from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.testing.fake_server import fake_server, refusing_url


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Something that is no server of models: the same answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("X-Key", self.headers.get("Authorization", ""))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_server_that_is_there() -> None:
    with fake_server() as url:
        for each in (url, f"{url}/", f"{url}/v1"):
            assert Endpoint(each).server.identify().model == "fake"
        assert "vllm:num_preemptions_total" in Endpoint(url).server.metrics()
        assert Endpoint(url).server.identify().version is None, "it has no such page"


def test_nobody_is_there() -> None:
    endpoint = Endpoint(refusing_url())
    with pytest.raises(OutdraftError, match=r"no server answers at .*Connection refused.*"):
        endpoint.server.identify()
    assert endpoint.server.metrics() == {}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"", "http 500"),
        (404, b"{}", "http 404"),
        (200, b"<html>", "no server answers"),
        (200, b"[]", "not as an OpenAI-compatible server"),
        (200, b'{"data": "many"}', "not as an OpenAI-compatible server"),
    ],
)
def test_something_else_is_there(status: int, body: bytes, said: str) -> None:
    with answering(status, body) as url:
        with pytest.raises(OutdraftError) as error:
            Endpoint(url).server.identify()
        assert said in str(error.value)
        assert "\n" not in str(error.value)

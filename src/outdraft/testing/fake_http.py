"""Just enough HTTP/1.1 for a fake server. A web framework would be its bottleneck."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from outdraft.testing.fake_answers import TimedBytes

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 411: "Length Required"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_MAX_BODY_BYTES = 64 << 20
_SOON_S = 0.0005  # timers are only this exact: what is due by then is sent now


def response(status: int, content_type: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Fake')}\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def json_response(status: int, value: Any) -> bytes:
    return response(status, "application/json", json.dumps(value).encode())


def chunked_response(body: Sequence[TimedBytes], *, is_whole: bool) -> list[TimedBytes]:
    """A response in chunks; without `is_whole` the last one, which ends it, is missing."""
    chunks = [(at, b"%x\r\n%b\r\n" % (len(data), data)) for at, data in body if data]
    end = [(body[-1][0], b"0\r\n\r\n")] if is_whole else []
    return [(0.0, _STREAM_HEAD), *chunks, *end]


@dataclass(eq=False)
class HttpConnection(asyncio.Protocol):
    """One connection. `respond(connection, method, path, body)` is called for each request."""

    respond: Callable[[HttpConnection, str, str, bytes], None]
    connections: set[HttpConnection]
    headers: Mapping[str, str] = field(default_factory=dict)  # of the request that came last
    _buffer: bytes = b""
    _transport: asyncio.Transport | None = None
    _timer: asyncio.TimerHandle | None = None
    _on_end: Callable[[], None] | None = None  # of the response that is playing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it
        self.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.discard(self)
        self._end()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
            method, path, *_ = [*head.split(" "), "", ""]
            named = (line.partition(":") for line in lines)
            self.headers = {name.lower(): value.strip() for name, _, value in named}
            if "transfer-encoding" in self.headers:
                error = {"error": {"message": "send a Content-Length"}}
                return self.send(json_response(411, error))
            length = int(self.headers.get("content-length") or 0)
            if length > _MAX_BODY_BYTES:
                return self.abort()
            if len(self._buffer) < end + 4 + length:
                return None
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self.respond(self, method, path, body)
        return None

    def send(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def play(
        self, pieces: Sequence[TimedBytes], on_end: Callable[[], None], *, close: bool = False
    ) -> None:
        """Sends each piece at its time, seconds from now.

        `on_end` is called once, when the last piece is out or the client has gone. With `close`
        the connection is closed then.
        """
        self._on_end = on_end
        self._play_from(0, pieces, time.perf_counter(), close)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _play_from(self, at: int, pieces: Sequence[TimedBytes], start: float, close: bool) -> None:
        now = time.perf_counter() - start
        due = b""
        while at < len(pieces) and pieces[at][0] <= now + _SOON_S:
            due += pieces[at][1]
            at += 1
        if at < len(pieces):
            loop = asyncio.get_running_loop()
            delay = max(0.0, pieces[at][0] - now)
            self._timer = loop.call_later(delay, self._play_from, at, pieces, start, close)
        else:
            self._end()  # first: the client may look at the counters as soon as it has all
        self.send(due)
        if at == len(pieces) and close and self._transport is not None:
            self._transport.close()

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end()

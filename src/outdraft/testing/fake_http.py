"""Just enough of HTTP/1.1 for a fake server, by hand: frameworks would be its bottleneck."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 411: "Length Required"}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_MAX_BODY_BYTES = 64 << 20
_SOON_S = 0.0005  # timers are only this exact: what is due by then is sent now

Respond = Callable[["HttpConnection", str, str, bytes], None]


class HttpConnection(asyncio.Protocol):
    """One connection. `respond(connection, method, path, body)` is called for each request."""

    def __init__(self, respond: Respond, connections: set[HttpConnection]) -> None:
        self._respond = respond
        self._connections = connections
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._on_end: Callable[[bool], None] | None = None  # of the stream that is playing

    # ------------------------------------------------------------ asyncio's end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._end_stream(False)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, *lines = self._buffer[:end].decode("latin-1").split("\r\n")
            method, path, *_ = [*head.split(" "), "", ""]
            headers = {name.lower(): value for name, _, value in (x.partition(":") for x in lines)}
            if "transfer-encoding" in headers:
                return self.reply_json(411, {"error": {"message": "send a Content-Length"}})
            length = int(headers.get("content-length") or 0)
            if length > _MAX_BODY_BYTES:
                return self.abort()
            if len(self._buffer) < end + 4 + length:
                return None
            body = self._buffer[end + 4 : end + 4 + length]
            self._buffer = self._buffer[end + 4 + length :]
            self._respond(self, method, path, body)
        return None

    # ------------------------------------------------------------ the server's end

    def reply(self, status: int, content_type: str, body: bytes) -> None:
        reason = _REASONS.get(status, "Fake")
        head = (
            f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._write(head.encode() + body)

    def reply_json(self, status: int, value: Any) -> None:
        self.reply(status, "application/json", json.dumps(value).encode())

    def reply_json_at(self, seconds: float, value: Any, on_end: Callable[[bool], None]) -> None:
        """Seconds from now; `on_end` as that of `play`."""

        def now() -> None:
            self._timer = None
            self._end_stream(True)
            self.reply_json(200, value)

        self._on_end = on_end
        self._timer = asyncio.get_running_loop().call_later(seconds, now)

    def play(
        self,
        pieces: Sequence[tuple[float, bytes]],
        on_end: Callable[[bool], None],
        *,
        ends: bool = True,
    ) -> None:
        """A stream: each piece at its time (seconds from now, on the monotonic clock).

        `on_end(whole)` is called once, when the last piece is out or the client has gone.
        `ends` False: the connection is cut where the stream should end.
        """
        self._on_end = on_end
        self._go_on(pieces, 0, time.perf_counter(), _STREAM_HEAD, ends)

    def hang(self, on_end: Callable[[bool], None]) -> None:
        """Nothing, until the client has had enough."""
        self._on_end = on_end

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _go_on(
        self,
        pieces: Sequence[tuple[float, bytes]],
        place: int,
        start: float,
        out: bytes,
        ends: bool,
    ) -> None:
        soon = time.perf_counter() - start + _SOON_S
        while place < len(pieces) and pieces[place][0] <= soon:
            piece = pieces[place][1]
            out += b"%x\r\n%b\r\n" % (len(piece), piece)
            place += 1
        if place == len(pieces):
            self._timer = None
            self._write(out + b"0\r\n\r\n" if ends else out)
            if not ends and self._transport is not None:
                self._transport.close()
            self._end_stream(ends)
            return
        self._write(out)
        delay = pieces[place][0] - (time.perf_counter() - start)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0.0, delay), self._go_on, pieces, place, start, b"", ends)

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _end_stream(self, whole: bool) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_end is not None:
            on_end, self._on_end = self._on_end, None
            on_end(whole)

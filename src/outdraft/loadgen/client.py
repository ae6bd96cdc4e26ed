"""One request to a server gives one record, whatever the server does.

Times are those of time.perf_counter_ns when the event loop hands over the data. How late the loop
itself runs is measured separately (`heartbeat`).
"""

from __future__ import annotations

import asyncio
import errno
import json
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Self

import aiohttp

from outdraft.loadgen.answer import COUNTS, Answer, message_of, shorten
from outdraft.loadgen.endpoint import Endpoint, Request, refused_fields
from outdraft.loadgen.sse import SseParser
from outdraft.records import Record

# Servers drop idle connections after 5 s (uvicorn, cpp-httplib). A request sent just then would be
# lost, and counted as the server's failure.
_KEEPALIVE_S = 3.0
_MAX_ERROR_BYTES = 64 << 10
_FROM_ANSWER = (*COUNTS, "finish_reason", "acceptance")
_LAST_BYTES_S = 1.0  # for the end of a stream after its last event


@dataclass(frozen=True, slots=True)
class Timeouts:
    """In seconds. The first token may take long: a busy server queues requests."""

    connect_s: float = 10.0
    first_s: float = 120.0  # from sending to the first text
    gap_s: float = 60.0  # between two chunks of text
    total_s: float = 600.0


class Client:
    """The connections to one endpoint, one for each open request: `async with Client(endpoint)`."""

    def __init__(
        self, endpoint: Endpoint, timeouts: Timeouts | None = None, *, keep_text: bool = True
    ) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts or Timeouts()
        self._keep_text = keep_text
        self._url = endpoint.answer_url
        self._sessions: list[aiohttp.ClientSession] = []  # requests are sent with the last
        self.refused: set[str] = set()  # optional fields that the server does not accept

    async def __aenter__(self) -> Self:
        self._sessions.append(
            self._new_session(
                aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S, ttl_dns_cache=300)
            )
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        for each in self._sessions:
            await each.close()
        self._sessions.clear()

    def _new_session(self, connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            headers=self._endpoint.headers,
            skip_auto_headers=("User-Agent",),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._timeouts.connect_s),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    def _note_server(self, name: str | None) -> None:
        """llama.cpp promises keep-alive and hangs up after a stream: the next request would be
        lost. Connections that have served one are left behind, with the session they belong to."""
        if name == "llama.cpp" and len(self._sessions) == 1:
            once = aiohttp.TCPConnector(limit=0, force_close=True, ttl_dns_cache=300)
            self._sessions.append(self._new_session(once))

    async def send(self, request: Request, scheduled_ns: int | None = None) -> Record:
        """Latencies count from `scheduled_ns`, the time it was due; None: now."""
        scheduled = perf_counter_ns() if scheduled_ns is None else scheduled_ns
        exchange = _Exchange(self._timeouts)
        error = await self._guarded(request, exchange)
        answer = exchange.answer
        return request.record(
            scheduled,
            sent_ns=exchange.sent_ns,
            first_ns=answer.chunk_ns[0] if answer.chunk_ns else None,
            last_ns=answer.chunk_ns[-1] if answer.chunk_ns else None,
            chunk_ns=tuple(answer.chunk_ns),
            **{name: getattr(answer, name) for name in _FROM_ANSWER},
            text=answer.text if self._keep_text or request.planned.then else None,
            error=error,
        )

    async def _guarded(self, request: Request, exchange: _Exchange) -> str | None:
        """The error in a few words, or None."""
        try:
            first_s = min(self._timeouts.first_s, self._timeouts.total_s)
            async with asyncio.timeout(first_s) as exchange.watch:
                return await self._exchange(request, exchange)
        except aiohttp.ServerTimeoutError:
            return "timeout connecting"
        except TimeoutError:
            return f"timeout {exchange.phase}"
        except aiohttp.ClientConnectorError as error:
            return _no_connection(error)
        except aiohttp.ServerDisconnectedError:
            return "disconnected"
        except aiohttp.ClientPayloadError:
            return exchange.answer.error() or "stream ended early"
        except aiohttp.ClientResponseError as error:
            return f"not http: {shorten(error.message)}"
        except (OSError, aiohttp.ClientError) as error:
            if exchange.answer.chunk_ns:
                return exchange.answer.error() or "stream ended early"
            return f"connection lost: {_reason(error)}"

    async def _exchange(self, request: Request, exchange: _Exchange) -> str | None:
        assert self._sessions, "use `async with Client(...)`"
        while True:
            optional = self._endpoint.optional.keys() - self.refused
            body = self._endpoint.body(request, optional)
            exchange.sent_ns = exchange.sent_ns or perf_counter_ns()
            post = self._sessions[-1].post(self._url, data=body, allow_redirects=False)
            async with post as response:
                self._note_server(response.headers.get("Server"))
                status = response.status
                if status == 200:
                    return await exchange.read(response)
                answer = await response.content.read(_MAX_ERROR_BYTES)
            refused = refused_fields(answer, optional) if status in (400, 422) else set()
            if not refused:
                return _http_error(status, answer)
            self.refused |= refused  # then again without them: at most once for each field


class _Exchange:
    """The state of one request on the wire."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self.answer = Answer()
        self.sent_ns: int | None = None
        self.phase = "waiting for the first token"
        self.watch = asyncio.timeout(None)
        self._postpone_after_ns = 0

    async def read(self, response: aiohttp.ClientResponse) -> str | None:
        if response.content_type == "application/json":
            return "not a stream"
        answer, parser, content = self.answer, SseParser(), response.content
        while not (content.at_eof() or parser.overflowed or answer.is_done):
            data = await content.readany()
            now = perf_counter_ns()
            for event in parser.feed(data):
                answer.add(event, now)
            if now >= self._postpone_after_ns and answer.chunk_ns:
                self._postpone(now)
        if answer.is_done and not content.at_eof():
            await self._drain(response)
        return answer.error(overflowed=parser.overflowed)

    def _postpone(self, now_ns: int) -> None:
        """Postpones the timeout, by a little more than the gap so as not to do it at each chunk."""
        assert self.sent_ns is not None
        left_s = self._timeouts.total_s - (now_ns - self.sent_ns) / 1e9
        slack_s = self._timeouts.gap_s / 10
        gap_s = self._timeouts.gap_s + slack_s
        self.phase = "between chunks" if gap_s < left_s else "in total"
        self.watch.reschedule(asyncio.get_running_loop().time() + min(gap_s, left_s))
        self._postpone_after_ns = now_ns + round(slack_s * 1e9)

    async def _drain(self, response: aiohttp.ClientResponse) -> None:
        """Reads to the end of the stream, so that the connection can be reused."""
        self.watch.reschedule(None)
        try:
            async with asyncio.timeout(_LAST_BYTES_S):
                await response.content.read()
        except (TimeoutError, OSError, aiohttp.ClientError):
            response.close()  # the answer is complete all the same


def _no_connection(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "certificate not trusted"
    if isinstance(error.os_error, ConnectionRefusedError):
        return "refused"
    if error.os_error.errno in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise ulimit -n or send less at a time"
    return f"no connection: {_reason(error.os_error)}"


def _reason(error: BaseException) -> str:
    if isinstance(error, ConnectionResetError):
        return "reset by the server"
    return shorten(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _http_error(status: int, answer: bytes) -> str:
    try:
        return f"http {status}: {message_of(json.loads(answer))}"
    except (ValueError, RecursionError):
        return f"http {status}"

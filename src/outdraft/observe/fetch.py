"""Asks a server for its /metrics page: so many bytes at most, so many seconds at most, and nothing
that it answers is an error of ours.

async with open_session() as session:
    reading = await fetch_reading(session, "http://user:secret@host:8000", limit_s=2.0)
"""

import asyncio
import base64
import json
import os
import socket
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from outdraft.errors import BackendError
from outdraft.observe.counters import ENGINE_PREFIXES
from outdraft.observe.reading import Reading, reading_of

MAX_BYTES = 4 << 20  # vLLM's page has about 200 kB for each of its engines
_MAX_LINES = 100_000
_MAX_VERSION_CHARS, _MAX_MODEL_CHARS = 100, 1000
_ASIDE_BYTES = 1 << 19  # larger pages are parsed beside the event loop
_CHUNK_BYTES = 1 << 16
# Nothing packed is asked for, so nothing can be larger than its bytes.
_HEADERS = {"Accept-Encoding": "identity", "Accept": "text/plain;version=0.0.4, */*;q=0.1"}
_VERSION_PAGES = {
    "vllm": ("/version", "version"),
    "outdraft": ("/version", "version"),
    "llamacpp": ("/props", "build_info"),
    "sglang": ("/server_info", "version"),
}
_SLOTS = "/slots"  # of llama.cpp; they say whether there is a draft
_MODEL_KEYS = {"llamacpp": "model_path"}  # on the same page; the metrics of others name theirs


@dataclass(frozen=True, slots=True)
class About:
    """What a server says of itself beside its metrics; None where it does not."""

    version: str | None = None
    model: str | None = None
    speculates: bool | None = None  # that it was started so; llama.cpp alone is asked


def open_session() -> aiohttp.ClientSession:
    """For many servers that are asked every few seconds. Never by a proxy. Connections are not
    kept: servers close them after about the same few seconds, and then a question fails."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, force_close=True),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        auto_decompress=False,
        trust_env=False,
    )


def redacted(url: str) -> str:
    """What may be shown of a URL, or of what is none: not its user and password, not its query."""
    scheme, separator, rest = url.rpartition("://") if "://" in url else ("", "", url)
    scheme = scheme.partition("://")[0]
    if "@" in rest or "@" in scheme:
        rest = f"***@{rest.rpartition('@')[2]}"
    address, asks, _ = rest.partition("?")
    return f"{scheme}{separator}{address}{'?***' if asks else ''}"


def page_url(url: str, page: str = "/metrics") -> str:
    """Of a server's URL, with or without /v1 or /metrics."""
    base, asks, query = url.partition("?")
    base = base.rstrip("/")
    for ending in ("/metrics", "/chat/completions", "/v1"):
        base = base.removesuffix(ending)
    return f"{base}{page}{asks}{query}"


async def fetch_reading(
    session: aiohttp.ClientSession,
    url: str,
    limit_s: float,
    *,
    api_key: str | None = None,
    version: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Reading:
    """BackendError with a reason, and without the URL, where it has no metrics of an engine."""
    body = await fetch_bytes(session, page_url(url), limit_s, api_key=api_key)
    at = clock()
    if len(body) > _ASIDE_BYTES:
        return await asyncio.to_thread(_read, body, at, version)
    return _read(body, at, version)


async def fetch_about(
    session: aiohttp.ClientSession,
    url: str,
    engine: str | None,
    limit_s: float,
    *,
    api_key: str | None = None,
) -> About:
    """Two questions at once at most, each within the limit."""
    page, key = _VERSION_PAGES.get(engine or "", ("/version", "version"))

    async def said(page: str) -> Any:
        try:
            body = await fetch_bytes(session, page_url(url, page), limit_s, api_key=api_key)
            return json.loads(body)
        except (BackendError, ValueError, RecursionError):
            return None

    asked = (said(page), said(_SLOTS)) if engine == "llamacpp" else (said(page),)
    found, *slots = await asyncio.gather(*asked)
    found = found if isinstance(found, Mapping) else {}
    return About(
        _text(found.get(key), _MAX_VERSION_CHARS),
        _text(found.get(_MODEL_KEYS.get(engine or "", "")), _MAX_MODEL_CHARS),
        _speculates(*slots) if slots else None,
    )


def _speculates(slots: object) -> bool | None:
    """None where llama.cpp does not show its slots."""
    every = slots if isinstance(slots, list) else []
    said = [each.get("speculative") for each in every if isinstance(each, Mapping)]
    known = [each for each in said if isinstance(each, bool)]
    return any(known) if known else None


def _text(value: object, max_chars: int) -> str | None:
    return value[:max_chars] if isinstance(value, str) and value else None


async def fetch_bytes(
    session: aiohttp.ClientSession,
    url: str,
    limit_s: float,
    *,
    api_key: str | None = None,
    max_bytes: int = MAX_BYTES,
    data: Mapping[str, str] | None = None,
    statuses: Collection[int] = (200,),
) -> bytes:
    """Of a GET, or of a POST of a form. The connection is closed, whatever came."""
    try:
        async with asyncio.timeout(limit_s), _asked(session, url, api_key, data) as answer:
            try:
                return await _body(answer, max_bytes, statuses)
            finally:
                answer.close()
    except TimeoutError:
        raise BackendError(f"no whole answer within {limit_s:g} s") from None
    except aiohttp.ClientError as failure:
        raise BackendError(_reason(failure)) from None
    except (OSError, ValueError):  # also an address that is none
        raise BackendError("no usable address") from None


def _asked(
    session: aiohttp.ClientSession, url: str, api_key: str | None, data: Mapping[str, str] | None
) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
    address = URL(url)
    headers = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    if address.user is not None or address.password is not None:
        words = f"{address.user or ''}:{address.password or ''}".encode()
        headers = {"Authorization": f"Basic {base64.b64encode(words).decode()}"}
        address = address.with_user(None)
    return session.request(
        "GET" if data is None else "POST",
        address,
        data=data,
        headers=headers,
        allow_redirects=False,
        timeout=aiohttp.ClientTimeout(total=None),  # the caller's is for all of it
    )


async def _body(answer: aiohttp.ClientResponse, max_bytes: int, statuses: Collection[int]) -> bytes:
    if 300 <= answer.status < 400:
        raise BackendError(f"it redirects (http {answer.status}), which is not followed")
    if answer.status not in statuses:
        raise BackendError(f"http {answer.status}")
    packed = answer.headers.get("Content-Encoding", "identity").lower()
    if packed not in ("", "identity"):
        raise BackendError("a packed page, which nobody asked for")
    if (answer.content_length or 0) > max_bytes:
        raise BackendError(_too_long(max_bytes))
    parts: list[bytes] = []
    size = 0
    async for part in answer.content.iter_chunked(_CHUNK_BYTES):
        size += len(part)
        if size > max_bytes:
            raise BackendError(_too_long(max_bytes))
        parts.append(part)
    return b"".join(parts)


def _too_long(max_bytes: int) -> str:
    return f"a page of more than {max_bytes / (1 << 20):g} MiB, which is not read"


def _read(body: bytes, at: float, version: str | None) -> Reading:
    if b"\0" in body:
        raise BackendError("binary data, not metrics")
    if body.count(b"\n") > _MAX_LINES:
        raise BackendError(f"a page of more than {_MAX_LINES:,} lines, which is not read")
    reading = reading_of(str(body, "utf-8", errors="replace"), at, version)
    if reading.engine is not None:
        return reading
    if body.lstrip()[:1] == b"<":
        raise BackendError("a web page, not metrics")
    if b"# TYPE " in body:
        known = ", ".join(f"{prefix}:" for prefix in ENGINE_PREFIXES)
        raise BackendError(f"metrics of no engine that is known ({known})")
    raise BackendError("no metrics in Prometheus' text form")


def _reason(failure: aiohttp.ClientError) -> str:
    """Without the URL, which may hold a password."""
    if isinstance(failure, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(failure, aiohttp.ClientSSLError):
        return "it does not speak TLS"
    cause = getattr(failure, "os_error", failure)
    if isinstance(cause, socket.gaierror):
        return "its name is not known"
    if isinstance(cause, OSError) and cause.errno:
        return os.strerror(cause.errno).lower()
    if isinstance(failure, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    if isinstance(failure, aiohttp.ClientPayloadError):
        return "it closed the connection before the end of the page"
    if isinstance(failure, aiohttp.InvalidURL):
        return "no usable address"
    return "it does not speak HTTP"

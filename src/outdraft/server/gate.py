"""What a request has to pass before anything looks at it: the key, and the size of its body."""

from __future__ import annotations

import asyncio
import secrets

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outdraft.server.refusal import Refusal

_OPEN_PATHS = frozenset({"/health"})
_BODY_TIMEOUT_S = 60.0


class Gate:
    def __init__(self, app: ASGIApp, *, api_key: str | None, max_body_bytes: int) -> None:
        self._app = app
        self._api_key = None if api_key is None else api_key.encode()
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            self._check_key(scope["path"], headers)
            body = await self._read(headers, receive)
        except Refusal as refusal:
            answer = JSONResponse(refusal.body, refusal.status, refusal.headers)
            await answer(scope, receive, send)
            return
        if body is None:
            return  # it left before its body was whole
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)

    def _check_key(self, path: str, headers: Headers) -> None:
        if self._api_key is None or path in _OPEN_PATHS:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        # Compared in constant time: how long a wrong key takes says nothing about the right one.
        right = secrets.compare_digest(key.strip().encode("latin-1", "replace"), self._api_key)
        if scheme.lower() != "bearer" or not right:
            raise Refusal(
                401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key"
            )

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_body_bytes:
            raise self._too_large()
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._max_body_bytes:
                        raise self._too_large()
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(
                408, f"the body did not come within {_BODY_TIMEOUT_S:g} seconds", param="body"
            ) from None

    def _too_large(self) -> Refusal:
        return Refusal(
            400,
            f"body: larger than the {self._max_body_bytes} bytes this server takes",
            param="body",
            code="body_too_large",
        )

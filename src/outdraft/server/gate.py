"""Checks before anything else reads a request: the API key and the size of the body."""

import asyncio
import secrets

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outdraft.server.refusal import Refusal

_OPEN_PATHS = frozenset({"/health"})
_ADMIN_PATHS = "/admin/"  # with a key of their own, which opens nothing else
_BODY_TIMEOUT_S = 60.0


class Gate:
    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        admin_key: str | None = None,
        max_body_bytes: int,
    ) -> None:
        """Without an admin key, admin paths are like any other."""
        self._app = app
        self._api_key = None if api_key is None else api_key.encode()
        self._admin_key = None if admin_key is None else admin_key.encode()
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
            await refusal.response(scope, receive, send)
            return
        if body is None:
            return  # the client left before its body was complete
        waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replay, send)

    def _check_key(self, path: str, headers: Headers) -> None:
        is_admin = self._admin_key is not None and path.startswith(_ADMIN_PATHS)
        needed = self._admin_key if is_admin else self._api_key
        if needed is None or path in _OPEN_PATHS:
            return
        scheme, _, key = headers.get("authorization", "").partition(" ")
        # Compared in constant time, so that timing does not reveal the key.
        right = secrets.compare_digest(key.strip().encode("latin-1", "replace"), needed)
        if scheme.lower() != "bearer" or not right:
            name = "the admin" if is_admin else "a valid API"
            words = f"{name} key is needed: Authorization: Bearer KEY"
            raise Refusal(401, words, code="invalid_api_key")

    async def _read(self, headers: Headers, receive: Receive) -> bytes | None:
        words = f"body: larger than the {self._max_body_bytes} bytes this server takes"
        too_large = Refusal(400, words, param="body", code="body_too_large")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > self._max_body_bytes:
            raise too_large
        body = bytearray()  # grows without copying what came before
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self._max_body_bytes:
                        raise too_large
                    more = message.get("more_body", False)
        except TimeoutError:
            words = f"the body did not come within {_BODY_TIMEOUT_S:g} seconds"
            raise Refusal(408, words, param="body") from None
        return bytes(body)

"""Request bodies as JSON, read more strictly than FastAPI does.

`json` accepts lone surrogates, in escapes and in raw bytes; tokenizers do not, and pydantic panics
when a key has one. Other inputs make `json` itself fail (deep nesting, numbers of thousands of
digits). All of these become one kind of error.
"""

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse_body(body: bytes) -> Any:
    """Raises nothing but JSONDecodeError, which FastAPI reports as an invalid request."""
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # pairs have become characters
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        reason = "text that is not Unicode" if isinstance(error, UnicodeError) else str(error)
        raise json.JSONDecodeError(reason, "", 0) from error
    return value


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse_body(await self.body())


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly

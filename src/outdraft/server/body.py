"""A body as JSON, read more strictly than FastAPI does it.

`json` takes lone surrogates, in escapes and in raw bytes; no tokenizer does, and pydantic panics
over them in a key. What else `json` stumbles over (endless nesting, numbers of thousands of
digits) is no JSON that anybody means: one error for all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def parse(body: bytes) -> Any:
    """Raises JSONDecodeError, which FastAPI reports as an invalid request, and nothing else."""
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
        return parse(await self.body())


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly

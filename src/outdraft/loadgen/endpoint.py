"""Where requests go and what every one of them carries."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from outdraft.errors import OptionError
from outdraft.loadgen.request import Request

# What makes a measurement better where a server knows it: texts of equal length, and what
# speculation did for each of them (ours and vLLM's name, then SGLang's).
OPTIONAL: Mapping[str, Any] = {
    "ignore_eos": True,
    "include_metrics": True,
    "return_spec_tokens_details": True,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server with OpenAI's API. Plain values: it travels to client processes."""

    url: str  # with or without /v1
    model: str | None = None
    api_key: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # body fields, always sent
    # Body fields that are left out from then on when the server refuses them by name.
    optional: Mapping[str, Any] = field(default_factory=lambda: dict(OPTIONAL))

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise OptionError(f"no URL of a server: {self.url!r}; write e.g. http://localhost:8000")
        if self.api_key is not None and not self.api_key.isprintable():
            raise OptionError("the API key holds a line end or another control character; trim it")

    @property
    def chat_url(self) -> str:
        root = self.url.rstrip("/").removesuffix("/chat/completions").removesuffix("/v1")
        return f"{root}/v1/chat/completions"

    @property
    def headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # a compressed stream comes in lumps
        }
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers

    def body(self, request: Request, optional: Collection[str]) -> bytes:
        """`optional`: which of the optional fields to send."""
        planned = request.planned
        fields: dict[str, Any] = {
            "messages": [
                {"role": each.role, "content": each.content} for each in planned.prompt.messages
            ],
            "max_tokens": planned.max_tokens,
            "temperature": planned.temperature,
            "seed": planned.seed,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extra,
        }
        if self.model is not None:
            fields["model"] = self.model
        fields |= {name: value for name, value in self.optional.items() if name in optional}
        return json.dumps(fields).encode()


def refused_fields(answer: bytes, fields: Collection[str]) -> set[str]:
    """Those of `fields` that a 400 or 422 names, in OpenAI's form or FastAPI's.

    The whole answer is searched only when it is in neither form: some echo the request.
    """
    try:
        payload = json.loads(answer)
    except (ValueError, RecursionError):
        return _named(answer.decode("utf-8", "replace"), fields)
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if not isinstance(error, dict):
        return _named(str(error), fields)
    if named := _named(str(error.get("param")), fields):
        return named
    details = error.get("detail")
    if isinstance(details, list):
        where = [each.get("loc") for each in details if isinstance(each, dict)]
        return _named(json.dumps(where), fields)
    return _named(str(error.get("message") or details or ""), fields)


def _named(text: str, fields: Collection[str]) -> set[str]:
    words = set(re.findall(r"\w+", text))
    return {name for name in fields if name in words}

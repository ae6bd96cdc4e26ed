"""What a measurement asks a server beside its requests: alive, which model, its counters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib import error, request

from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.metrics_page import Page, parse

_TIMEOUT_S = 10.0
_MAX_BYTES = 16 << 20


def check_alive(endpoint: Endpoint) -> None:
    """Raises in one line unless something that speaks OpenAI's API answers there."""
    try:
        models = _get(endpoint, "/v1/models")
    except (OSError, ValueError) as failure:
        raise OutdraftError(
            f"no server answers at {endpoint.url} ({_reason(failure)}); start one, e.g. "
            "`outdraft serve`, or check the URL"
        ) from failure
    if not isinstance(models, Mapping) or not isinstance(models.get("data"), list):
        raise OutdraftError(f"{endpoint.url} answers, but not as an OpenAI-compatible server")


def model_of(endpoint: Endpoint) -> str | None:
    """The first model served there: what requests name where the user does not say."""
    try:
        return str(_get(endpoint, "/v1/models")["data"][0]["id"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def metrics_of(endpoint: Endpoint) -> Page:
    """The server's counters; nothing where it has no such page."""
    try:
        return parse(_text(endpoint, "/metrics"))
    except (OSError, ValueError):
        return {}


def version_of(endpoint: Endpoint) -> str | None:
    try:
        return str(_get(endpoint, "/version")["version"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _get(endpoint: Endpoint, path: str) -> Any:
    return json.loads(_text(endpoint, path))


def _text(endpoint: Endpoint, path: str) -> str:
    root = endpoint.chat_url.removesuffix("/v1/chat/completions")
    headers = {k: v for k, v in endpoint.headers.items() if k == "Authorization"}
    asked = request.Request(root + path, headers=headers)
    try:
        with request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
            text: str = answer.read(_MAX_BYTES).decode("utf-8", errors="replace")
            return text
    except error.HTTPError as refused:
        refused.close()  # it is an answer too, with a connection of its own
        raise


def _reason(failure: Exception) -> str:
    if isinstance(failure, error.HTTPError):
        return f"http {failure.code}"
    if isinstance(failure, error.URLError):
        return str(getattr(failure.reason, "strerror", None) or failure.reason)
    return str(failure) or type(failure).__name__

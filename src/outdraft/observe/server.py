"""A running server with OpenAI's API, asked what it is and what it counts."""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from urllib import error, request

from outdraft.errors import BackendError
from outdraft.observe.counters import ENGINE_PREFIXES, engine_of
from outdraft.observe.page import Page, parse_page

_TIMEOUT_S = 10.0
_MAX_BYTES = 16 << 20
_TRIES, _PAUSE_S = 20, 0.1
# Pages that say the version, and the only engine that has the page.
_VERSIONS = (
    ("/version", "version", None),
    ("/props", "build_info", "llamacpp"),
    ("/server_info", "version", "sglang"),
)
_SGLANG_METHODS = {"NGRAM": "ngram", "STANDALONE": "draft_model", "EAGLE": "eagle",
                   "EAGLE3": "eagle"}  # fmt: skip
_OPENER = request.build_opener(request.ProxyHandler({}))  # as the load itself: never by a proxy


@dataclass(frozen=True, slots=True)
class Identity:
    """What answers at a URL, as far as it says so."""

    engine: str | None  # a backend's name; None: another engine
    version: str | None
    model: str | None  # the first that it serves

    def __str__(self) -> str:
        return f"{self.engine or 'an unknown engine'} {self.version or ''}".rstrip()


class RemoteServer:
    def __init__(
        self, url: str, api_key: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """`url`: with or without /v1, /v1/completions or /v1/chat/completions."""
        path = url.rstrip("/").removesuffix("/completions").removesuffix("/chat")
        self.url = path.removesuffix("/v1")
        own = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        self.headers = own | dict(headers or {})

    def identify(self) -> Identity:
        """BackendError where nothing with OpenAI's API answers."""
        try:
            models = json.loads(self._text("/v1/models"))
        except (OSError, ValueError) as failure:
            raise BackendError(
                f"no server answers at {self.url} ({_reason(failure)}); start one, e.g. "
                "`outdraft serve`, or check the URL"
            ) from failure
        if not isinstance(models, Mapping) or not isinstance(models.get("data"), list):
            raise BackendError(f"{self.url} answers, but not as an OpenAI-compatible server")
        first = next(iter(models["data"]), None)
        model = first if isinstance(first, Mapping) else {}
        owner = str(model.get("owned_by", "")).lower()
        engine = engine_of(self.metrics()) or (owner if owner in ENGINE_PREFIXES else None)
        engine, version = self._version(engine)
        return Identity(engine, version, str(model["id"]) if "id" in model else None)

    def method(self) -> str | None:
        """How it proposes tokens, in our words; None where it does not say."""
        own = self._field("/version", "method")
        sglangs = self._field("/server_info", "speculative_algorithm") if own is None else None
        return own or _SGLANG_METHODS.get((sglangs or "").upper())

    def metrics(self) -> Page:
        """Its counters; an empty page where it has none."""
        try:
            return parse_page(self._text("/metrics"))
        except (OSError, ValueError):
            return {}

    def count_tokens(self, text: str, model: str | None = None) -> int | None:
        """Of a text without any template, by the page that vLLM, SGLang, llama.cpp and our own
        server have; None where it does not answer."""
        named = {} if model is None else {"model": model}
        forms = ({**named, "prompt": text, "add_special_tokens": False}, {"content": text})
        for body in forms:  # llama.cpp finds no tokens in the first
            with suppress(OSError, ValueError, KeyError, TypeError):
                found = json.loads(self._text("/tokenize", json.dumps(body).encode()))
                count = len(found["tokens"]) if "tokens" in found else int(found["count"])
                if count:
                    return count
        return None

    def is_ready(self) -> bool:
        """Whether /health says so, or, in a server without it, whether models are listed."""
        for path in ("/health", "/v1/models"):
            try:
                self._text(path)
                return True
            except OSError as failure:
                if getattr(failure, "code", None) != 404:
                    return False
        return False

    def forget(self, path: str = "/forget") -> None:
        """Drops what it remembers of earlier requests; BackendError where it does not do that."""
        for is_last in (*(_TRIES - 1) * (False,), True):
            try:
                self._text(path, body=b"")
                return
            except OSError as failure:
                # SGLang says so while it still frees what the last requests held.
                if is_last or getattr(failure, "code", None) != 400:
                    raise BackendError(
                        f"{self.url}{path} did not make it forget ({_reason(failure)})"
                    ) from failure
                time.sleep(_PAUSE_S)

    def post(self, path: str, body: str, limit_s: float) -> None:
        """Asks for something to be done. BackendError where it is refused or takes too long."""
        try:
            self._text(path, body.encode(), limit_s)
        except OSError as failure:
            raise BackendError(f"{self.url}{path}: {_reason(failure)}") from failure

    def _version(self, engine: str | None) -> tuple[str | None, str | None]:
        """The engine and its version, by a page that only this engine has."""
        for path, key, owner in _VERSIONS:
            if version := self._field(path, key):
                return engine or owner, version
        if engine is None and self._field("/props", "total_slots"):
            return "llamacpp", None
        return engine, None

    def _field(self, path: str, key: str) -> str | None:
        try:
            value = json.loads(self._text(path))[key]
        except (OSError, ValueError, LookupError, TypeError):
            return None
        return None if value is None else str(value)

    def _text(self, path: str, body: bytes | None = None, limit_s: float = _TIMEOUT_S) -> str:
        """Of a GET, or of a POST with a body."""
        headers = {"Content-Type": "application/json"} if body else {}
        question = request.Request(self.url + path, body, {**self.headers, **headers})
        try:
            with _OPENER.open(question, timeout=limit_s) as answer:
                return str(answer.read(_MAX_BYTES), "utf-8", errors="replace")
        except error.HTTPError as refused:
            refused.close()  # it is an answer too, with a connection of its own
            raise
        except HTTPException as broken:
            raise OSError(f"not HTTP: {broken!r}") from broken


def _reason(failure: Exception) -> str:
    if isinstance(failure, error.HTTPError):
        return f"http {failure.code}"
    if isinstance(failure, error.URLError):
        return str(getattr(failure.reason, "strerror", None) or failure.reason)
    return str(failure) or type(failure).__name__

"""A server that somebody else runs: nothing is started or stopped, only asked what it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib import error, request

from outdraft.backends.backend import Capabilities, Installed, Launch, Serving, Traffic
from outdraft.backends.lookup import ENGINES, backend_named
from outdraft.errors import BackendError, OptionError
from outdraft.metrics_page import Page, parse
from outdraft.records import AcceptanceCounts
from outdraft.speculation import Speculation

_TIMEOUT_S = 10.0
_MAX_BYTES = 16 << 20
# The engine by the names on its /metrics; our own server has vLLM's beside its own.
_PREFIXES = (
    ("outdraft:", "outdraft"),
    ("llamacpp:", "llamacpp"),
    ("sglang:", "sglang"),
    ("vllm:", "vllm"),
)


@dataclass(frozen=True, slots=True)
class Identity:
    """What answers at a URL, as far as it says so."""

    engine: str | None  # a backend's name; None: something else that speaks OpenAI's API
    version: str | None
    model: str | None

    def __str__(self) -> str:
        return f"{self.engine or 'an unknown engine'} {self.version or ''}".rstrip()


class Attached:
    name = "attach"

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._identity: Identity | None = None

    def identify(self) -> Identity:
        """BackendError where nothing that speaks OpenAI's API answers."""
        if self._identity is None:
            self._identity = self._asked()
        return self._identity

    def detect(self) -> Installed:
        """No flags: they were chosen by whoever started it."""
        return Installed(version=str(self.identify()), options=frozenset())

    def capabilities(self) -> Capabilities:
        """How it was started is not known, so as little as any of them can do."""
        engine = self.identify().engine
        return Capabilities(
            methods=frozenset({"off"}),
            rules=frozenset({"coupled"}),
            draft_quantizations=frozenset({"none"}),
            has_schedule=False,
            has_draft_tensor_parallel=False,
            # llama.cpp and ours always tell, the others only when started for it
            acceptance_per_request=engine in ("outdraft", "llamacpp"),
            acceptance_per_position=engine in ("outdraft", "llamacpp", "vllm"),
        )

    def launch(self, serving: Serving, speculation: Speculation, port: int) -> Launch:
        raise OptionError(
            f"the server at {self.url} is somebody else's and is not started here; to try other "
            "settings name an engine: outdraft, vllm, sglang or llamacpp"
        )

    def preflight(
        self, serving: Serving, speculation: Speculation, traffic: Traffic
    ) -> tuple[str, ...]:
        return (
            f"how {self.identify()} at {self.url} was started is not known: its settings are taken "
            "as they are",
        )

    def drafted(self, page: Mapping[str, float]) -> AcceptanceCounts | None:
        """As the backend of the engine reads it, whose names are on the page."""
        engine = _engine_of(page)
        return None if engine is None else backend_named(engine).drafted(page)

    def metrics(self) -> Page:
        """Its counters; empty where it has none."""
        try:
            return parse(self._text("/metrics"))
        except (OSError, ValueError):
            return {}

    # ------------------------------------------------------------ asking

    def _asked(self) -> Identity:
        try:
            models = json.loads(self._text("/v1/models"))
            first = models["data"][0]
        except (OSError, ValueError, LookupError, TypeError) as failure:
            raise BackendError(
                f"no OpenAI-compatible server answers at {self.url} ({_why(failure)}); start one, "
                "or check the URL"
            ) from failure
        owner = str(first.get("owned_by", "")).lower() if isinstance(first, Mapping) else ""
        page = self.metrics()
        engine = _engine_of(page) or (owner if owner in ENGINES else None)
        model = str(first["id"]) if isinstance(first, Mapping) and "id" in first else None
        return Identity(*self._version(engine), model)

    def _version(self, engine: str | None) -> tuple[str | None, str | None]:
        """The engine and its version, by the page that only this engine has."""
        if version := self._field("/version", "version"):
            return engine, version
        if build := self._field("/props", "build_info"):
            return engine or "llamacpp", build
        if version := self._field("/server_info", "version"):
            return engine or "sglang", version
        if self._field("/props", "total_slots"):
            return engine or "llamacpp", None
        return engine, None

    def _field(self, path: str, key: str) -> str | None:
        try:
            return str(json.loads(self._text(path))[key])
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def _text(self, path: str) -> str:
        asked = request.Request(self.url + path, headers=self._headers)
        try:
            with request.urlopen(asked, timeout=_TIMEOUT_S) as answer:
                text: str = answer.read(_MAX_BYTES).decode("utf-8", errors="replace")
                return text
        except error.HTTPError as refused:
            refused.close()  # it is an answer too, with a connection of its own
            raise


def _engine_of(page: Mapping[str, float]) -> str | None:
    for prefix, engine in _PREFIXES:
        if any(key.startswith(prefix) for key in page):
            return engine
    return None


def _why(failure: Exception) -> str:
    if isinstance(failure, error.HTTPError):
        return f"http {failure.code}"
    if isinstance(failure, error.URLError):
        return str(getattr(failure.reason, "strerror", None) or failure.reason)
    if isinstance(failure, ValueError | LookupError | TypeError):
        return "it answers, but not with a list of models"
    return str(failure) or type(failure).__name__

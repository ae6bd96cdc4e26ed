"""A stream's events → what a record needs. Does no I/O.

Under speculation a chunk carries several tokens, so chunks are never counted as tokens: token
counts are the server's, or there are none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from outdraft.loadgen.acceptance import KEYS, acceptance_in
from outdraft.loadgen.sse import Event
from outdraft.records import AcceptanceCounts

_DONE = b"[DONE]"
_SHOWN = 80  # characters of a server's words in an error
_ABORTED = frozenset({"abort", "error"})  # finish reasons that are none


class Answer:
    """What a stream has said so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.chunk_ns: list[int] = []  # when each of the texts came
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.acceptance: AcceptanceCounts | None = None
        self.is_done = False  # the server said that nothing follows
        self._problem: str | None = None  # the first one

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, event: Event, at_ns: int) -> None:
        data = event.data
        if data == _DONE:
            self.is_done = True
            return
        try:
            payload = json.loads(data.decode())  # bytes are a fifth slower
        except (ValueError, RecursionError):  # no UTF-8, no JSON, or too deep a one
            if data.strip():
                self._note(f"malformed event: {shown(data.decode('utf-8', 'replace'))}")
            return
        if not isinstance(payload, dict):
            self._note(f"malformed event: {shown(data.decode('utf-8', 'replace'))}")
            return
        if event.name == "error" or payload.get("error") or payload.get("object") == "error":
            self._note(f"server error: {message_of(payload)}")
            return
        self._add_choices(payload, at_ns)
        if payload.get("usage"):
            self._count(payload["usage"])
        if not KEYS.isdisjoint(payload):
            self.acceptance = acceptance_in(payload) or self.acceptance

    def error(self, *, overflowed: bool = False) -> str | None:
        """Why the answer cannot be used, now that the stream has ended."""
        if self._problem is not None:
            return self._problem
        if overflowed:
            return "event too long"
        if self.finish_reason is None:
            return "stream ended early"
        if self.finish_reason in _ABORTED:
            return f"aborted by the server: finish reason {self.finish_reason}"
        if not self.chunk_ns:
            return "no text"
        if self.completion_tokens is None:
            return "no token counts"
        return None

    def _add_choices(self, payload: Mapping[str, Any], at_ns: int) -> None:
        choices = payload.get("choices") or ()
        if not isinstance(choices, list | tuple):
            self._note("malformed event: choices is no list")
            return
        for choice in choices:
            if not isinstance(choice, dict):
                self._note("malformed event: a choice is no object")
                continue
            text = _text_of(choice)
            if text:
                self.texts.append(text)
                self.chunk_ns.append(at_ns)
            reason = choice.get("finish_reason")
            if reason:
                self.finish_reason = str(reason)

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        self.prompt_tokens = _whole(usage.get("prompt_tokens"), self.prompt_tokens)
        self.completion_tokens = _whole(usage.get("completion_tokens"), self.completion_tokens)
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict):
            self.cached_tokens = _whole(details.get("cached_tokens"), self.cached_tokens)

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem


def message_of(payload: Any) -> str:
    """The words of an error in OpenAI's form, or in one of those that others use."""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or json.dumps(error)
    return shown(error if isinstance(error, str) else json.dumps(error))


def shown(text: str) -> str:
    """On one line, and not too long for one."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _text_of(choice: Mapping[str, Any]) -> str:
    """The chat form's content and what a model thinks before it, or the completions form's text."""
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        text = choice.get("text")
        return text if isinstance(text, str) else ""
    text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
    return text if isinstance(text, str) else ""


def _whole(value: Any, otherwise: int | None) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_count else otherwise

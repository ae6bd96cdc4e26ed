"""One answer, read from the events of its stream. Does no I/O.

Under speculation a chunk carries several tokens, so chunks are never counted as tokens: token
counts are the server's, or there are none.
"""

import json
from collections.abc import Mapping
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.loadgen.reported_acceptance import KEYS, parse_acceptance
from outdraft.loadgen.sse import Event

_DONE = b"[DONE]"
_MAX_MESSAGE = 80  # characters of a server's words in an error
COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_ABORTED = frozenset({"abort", "error"})  # finish reasons of an answer that is not whole


class Answer:
    """What a stream has given so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.chunk_ns: list[int] = []  # when each of the texts arrived
        self.finish_reason: str | None = None
        self.prompt_tokens: int | None = None
        self.completion_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.acceptance: Acceptance | None = None
        self.is_done = False  # the server sent its end marker
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
        except (ValueError, RecursionError):  # no UTF-8, no JSON, or nested too deeply
            payload = None
        if not isinstance(payload, dict):
            if data.strip():
                self._note(f"malformed event: {shorten(data.decode('utf-8', 'replace'))}")
            return
        if event.name == "error" or payload.get("error") or payload.get("object") == "error":
            self._note(f"server error: {message_of(payload)}")
            return
        self._add_choices(payload, at_ns)
        if payload.get("usage"):
            self._count(payload["usage"])
        if not KEYS.isdisjoint(payload):
            self.acceptance = parse_acceptance(payload) or self.acceptance

    def error(self, *, overflowed: bool = False) -> str | None:
        """Why the answer cannot be used, now that the stream has ended."""
        reason = self.finish_reason
        problems = {
            "event too long": overflowed,
            "stream ended early": reason is None,
            f"aborted by the server: finish reason {reason}": reason in _ABORTED,
            "no text": not self.chunk_ns,
            "no token counts": self.completion_tokens is None,
        }
        return self._problem or next((each for each, has_it in problems.items() if has_it), None)

    def _add_choices(self, payload: Mapping[str, Any], at_ns: int) -> None:
        choices = payload.get("choices") or ()
        if not isinstance(choices, list | tuple):
            self._note("malformed event: choices is no list")
            return
        for choice in choices:
            if not isinstance(choice, dict):
                self._note("malformed event: a choice is no object")
                continue
            if text := _text_of(choice):
                self.texts.append(text)
                self.chunk_ns.append(at_ns)
            if reason := choice.get("finish_reason"):
                self.finish_reason = str(reason)

    def _count(self, usage: Any) -> None:
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        for name, value in (usage | {"cached_tokens": cached}).items():
            is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
            if is_count and name in COUNTS:
                setattr(self, name, value)

    def _note(self, problem: str) -> None:
        self._problem = self._problem or problem


def message_of(payload: Any) -> str:
    """The message of an error in OpenAI's form, or in one of the forms of other servers."""
    error = payload.get("error", payload) if isinstance(payload, dict) else payload
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or json.dumps(error)
    return shorten(error if isinstance(error, str) else json.dumps(error))


def shorten(text: str) -> str:
    """One line of at most `_MAX_MESSAGE` characters."""
    line = " ".join(text.split())
    return line if len(line) <= _MAX_MESSAGE else f"{line[: _MAX_MESSAGE - 1]}…"


def _text_of(choice: Mapping[str, Any]) -> str:
    """The content or reasoning of the chat form, or the text of the completions form."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        text = delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning")
    else:
        text = choice.get("text")
    return text if isinstance(text, str) else ""

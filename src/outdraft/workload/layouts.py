"""The usual layouts of an entry with a prompt: recognized by its keys, turned into a Prompt."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from outdraft.errors import nearest_name
from outdraft.workload.prompt import Message, Prompt

DEFAULT_EXPECTED_TOKENS = 128
Entry = Mapping[str, Any]
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant",
          "assistant": "assistant", "system": "system", "developer": "system",
          "bing": "assistant"}  # fmt: skip
_TEXT_PARTS = (None, "text", "input_text")
_TEXT_KEYS = ("prompt", "text", "question")
# Keys of our own layouts that mean something, then those that say nothing about the request.
_UNDERSTOOD = ("id", "category", "expected_tokens", "max_tokens", "messages", "metadata", "system",
               *_TEXT_KEYS)  # fmt: skip
_OF_NO_MATTER = ("answer", "completion", "output", "reference", "response", "source", "timestamp",
                 "ts", "time", "created", "created_at", "arrival_time", "arrived_at", "model",
                 "language", "lang", "title", "tags")  # fmt: skip
# Fields of a logged request without influence on the text, or that the options of a load decide
_REQUEST_FIELDS = ("model", "messages", "prompt", "max_tokens", "max_completion_tokens", "metadata",
                   "temperature", "top_p", "top_k", "min_p", "seed", "stream", "stream_options",
                   "n", "user", "store", "logprobs", "top_logprobs", "service_tier",
                   "safety_identifier", "prompt_cache_key", "ignore_eos")  # fmt: skip


def layout_of(entry: Entry) -> Callable[[Entry], Entry] | None:
    """A function from an entry to one with messages, and optionally id, category and
    expected_tokens."""
    keys = entry.keys()
    if keys >= {"task_id", "canonical_solution"}:
        return _humaneval
    if "turns" in keys:
        return _first_turn
    if "conversations" in keys:
        return _sharegpt
    if keys >= {"question", "answer"}:  # GSM8K
        return lambda entry: {"category": "math", "messages": _user_turn(entry["question"])}
    if "body" in keys or isinstance(entry.get("request"), dict):
        return _openai_log
    if "messages" in keys:
        return _own
    return _plain if keys & set(_TEXT_KEYS) else None


def make_prompt(entry: Entry, id: str) -> Prompt:
    """The conversation up to its last user turn: the server writes the answer to that."""
    turns = [(str(turn["role"]), turn["content"]) for turn in entry["messages"]]
    if unknown := [role for role, _ in turns if role not in _ROLES]:
        raise ValueError(f"unknown role {unknown[0]!r}; valid: {', '.join(_ROLES)}")
    while turns and _ROLES[turns[-1][0]] != "user":
        turns.pop()
    if not turns:
        raise ValueError("no user turn")
    expected = entry.get("expected_tokens") or DEFAULT_EXPECTED_TOKENS
    if not isinstance(expected, int) or expected < 1:
        raise ValueError(f"expected_tokens must be a whole number of at least 1, got {expected!r}")
    own_id = id if entry.get("id") is None else str(entry["id"])
    messages = tuple(Message(_ROLES[role], _plain_text(content)) for role, content in turns)
    return Prompt(own_id, str(_category(entry) or "other"), messages, expected)


def not_understood(entry: Entry) -> Iterator[tuple[str, str]]:
    """Keys of an entry that might matter and are left out, each with a hint or nothing."""
    layout = layout_of(entry)
    if layout in (_own, _plain):
        for key in entry.keys() - {*_UNDERSTOOD, *_OF_NO_MATTER}:
            near = nearest_name(key, _UNDERSTOOD, 0.75)
            yield key, f" (did you mean {near!r}?)" if near else ""
    elif layout is _openai_log:
        for key in _request(entry).keys() - set(_REQUEST_FIELDS):
            if _request(entry)[key] not in (None, [], {}, ""):
                yield key, " and left out of the logged request"


def _user_turn(text: Any) -> list[Entry]:
    return [{"role": "user", "content": text}]


def _own(entry: Entry) -> Entry:
    system = entry.get("system")
    before = [] if system is None else [{"role": "system", "content": system}]
    expected = entry.get("expected_tokens", entry.get("max_tokens"))
    return {**entry, "expected_tokens": expected, "messages": [*before, *entry["messages"]]}


def _plain(entry: Entry) -> Entry:
    key = next((key for key in _TEXT_KEYS if key in entry), "prompt")
    return _own({**entry, "messages": _user_turn(entry[key])})


def _sharegpt(entry: Entry) -> Entry:
    turns = [{"role": turn["from"], "content": turn["value"]} for turn in entry["conversations"]]
    return {**entry, "messages": turns}


def _openai_log(entry: Entry) -> Entry:
    """A logged request as it was sent: `body` (batch files) or `request`."""
    request = _request(entry)
    is_chat = "messages" in request
    if not is_chat and "prompt" not in request:
        raise ValueError(f"the logged request to {entry.get('url', 'somewhere')} has neither "
                         "messages nor a prompt")  # fmt: skip
    return {
        "id": entry.get("custom_id"),
        "category": _category(entry) or _category(request) or "log",
        "expected_tokens": request.get("max_completion_tokens", request.get("max_tokens")),
        "messages": request["messages"] if is_chat else _user_turn(request["prompt"]),
    }


def _request(entry: Entry) -> Entry:
    request = entry.get("body", entry.get("request"))
    if isinstance(request, str):
        request = json.loads(request)
    if not isinstance(request, dict):
        raise ValueError("the logged request is not an object")
    return request


def _category(entry: Entry) -> Any:
    """Its own, or that of its metadata, where OpenAI's clients put what belongs to a request."""
    metadata = entry.get("metadata")
    of_metadata = metadata.get("category") if isinstance(metadata, dict) else None
    return entry.get("category") or of_metadata


def _first_turn(entry: Entry) -> Entry:
    """MT-Bench and Spec-Bench: the first turn, which is what is usually measured."""
    turn = _user_turn(entry["turns"][0])
    return {"id": entry.get("question_id"), "category": entry.get("category"), "messages": turn}


def _humaneval(entry: Entry) -> Entry:
    text = f"Complete this function. Answer with the whole code.\n\n{entry['prompt']}"
    return {"id": entry["task_id"], "category": "code", "messages": _user_turn(text)}


def _plain_text(content: Any) -> str:
    if isinstance(content, list):  # OpenAI's content parts
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            if kind not in _TEXT_PARTS:
                raise ValueError(f"a part of type {kind!r}; only text can be sent")
        content = "".join(part.get("text", "") for part in content)
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"an empty or unreadable text: {str(content)[:40]!r}")
    return content

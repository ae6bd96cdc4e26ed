"""Prompts from a user's own files, whichever of the usual layouts they have.

The layout is found by looking at a file's first entry. Every entry that cannot be read is an
error with its line: a workload that silently lost a third of its prompts measures another one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from outdraft.errors import OptionError
from outdraft.workload.prompt import Message, Prompt

MAX_FILE_BYTES = 1 << 30
DEFAULT_EXPECTED_TOKENS = 128
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant",
          "assistant": "assistant", "system": "system", "bing": "assistant"}  # fmt: skip

Entry = Mapping[str, Any]


def read_prompts(path: Path) -> list[Prompt]:
    """Every prompt of a .jsonl or .json file, in order."""
    entries = list(_entries(path))
    if not entries:
        raise OptionError(f"{path} has no entries; give a file with at least one prompt")
    layout = _layout_of(entries[0][1])
    if layout is None:
        keys = ", ".join(sorted(map(str, entries[0][1]))[:12])
        raise OptionError(
            f"{path}: no known layout has the keys {keys}; write lines such as "
            '{"prompt": "...", "category": "chat"} or {"messages": [...]}'
        )
    prompts = []
    for place, entry in entries:
        try:
            prompts.append(layout(entry, f"{path.stem}-{place}"))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise OptionError(f"{path}, entry {place}: {what}") from None
    return _with_own_ids(prompts)


def has_prompts(path: Path) -> bool:
    """Whether the first entry is in a layout that `read_prompts` knows."""
    return any(_layout_of(entry) is not None for _, entry in islice(_entries(path), 1))


def _entries(path: Path) -> Iterator[tuple[int, Entry]]:
    """(line or place from 1, entry). A .json file is one list; a .jsonl an object a line."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise OptionError(f"{path} is over {MAX_FILE_BYTES >> 30} GiB; take a sample of it")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    if text.lstrip().startswith("["):
        for place, entry in enumerate(_parsed(text, f"{path}"), 1):
            yield place, _object(entry, f"{path}, entry {place}")
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}, line {number}"
            yield number, _object(_parsed(line, where), where)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{where}: not JSON ({error})") from None


def _object(entry: Any, where: str) -> Entry:
    if not isinstance(entry, dict):
        raise OptionError(f"{where}: not an object but {type(entry).__name__}")
    return entry


# ---------------------------------------------------------------- layouts


def _layout_of(entry: Entry) -> Callable[[Entry, str], Prompt] | None:
    keys = entry.keys()
    if "task_id" in keys and "canonical_solution" in keys:
        return _humaneval
    if "turns" in keys:
        return _turns
    if "conversations" in keys:
        return _sharegpt
    if "question" in keys and "answer" in keys:
        return _gsm8k
    if "body" in keys or isinstance(entry.get("request"), dict):
        return _openai_log
    if "messages" in keys:
        return _messages
    if "prompt" in keys or "text" in keys or "question" in keys:
        return _plain
    return None


def _plain(entry: Entry, id: str) -> Prompt:
    """Ours: prompt, and optionally id, category, expected_tokens."""
    key = next((key for key in ("prompt", "text", "question") if key in entry), "prompt")
    return _prompt(entry, id, [_message("user", entry[key])])


def _messages(entry: Entry, id: str) -> Prompt:
    return _prompt(entry, id, _up_to_user(entry["messages"], "role", "content"))


def _sharegpt(entry: Entry, id: str) -> Prompt:
    return _prompt(entry, id, _up_to_user(entry["conversations"], "from", "value"))


def _openai_log(entry: Entry, id: str) -> Prompt:
    """A logged request: `body` (batch files) or `request`, as it was sent."""
    request = entry.get("body", entry.get("request"))
    if isinstance(request, str):
        request = json.loads(request)
    if not isinstance(request, dict):
        raise ValueError("the logged request is not an object")
    limit = request.get("max_completion_tokens", request.get("max_tokens"))
    values = {"category": entry.get("category", "log"), "expected_tokens": limit}
    own = entry.get("custom_id", id)
    if "messages" in request:
        return _prompt(values, str(own), _up_to_user(request["messages"], "role", "content"))
    return _prompt(values, str(own), [_message("user", request["prompt"])])


def _turns(entry: Entry, id: str) -> Prompt:
    """MT-Bench and Spec-Bench: the first turn, as everybody measures it."""
    own = str(entry.get("question_id", id))
    return _prompt({"category": entry.get("category")}, own, [_message("user", entry["turns"][0])])


def _humaneval(entry: Entry, id: str) -> Prompt:
    asked = f"Complete this function. Answer with the whole code.\n\n{entry['prompt']}"
    return _prompt({"category": "code"}, str(entry["task_id"]), [_message("user", asked)])


def _gsm8k(entry: Entry, id: str) -> Prompt:
    return _prompt({"category": "math"}, id, [_message("user", entry["question"])])


# ---------------------------------------------------------------- the makings


def _prompt(entry: Entry, id: str, messages: list[Message]) -> Prompt:
    expected = entry.get("expected_tokens") or DEFAULT_EXPECTED_TOKENS
    if not isinstance(expected, int) or expected < 1:
        raise ValueError(f"expected_tokens must be a whole number of at least 1, got {expected!r}")
    category = str(entry.get("category") or "other")
    return Prompt(str(entry.get("id", id)), category, tuple(messages), expected)


def _message(role: str, content: Any) -> Message:
    if isinstance(content, list):  # OpenAI's parts
        content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"an empty or unreadable text: {str(content)[:40]!r}")
    return Message(role, content)


def _up_to_user(turns: Any, role_key: str, text_key: str) -> list[Message]:
    """The conversation up to and with its last user turn: the answer is the server's to write."""
    messages = []
    for turn in turns:
        role = str(turn[role_key])
        if role not in _ROLES:
            raise ValueError(f"unknown role {role!r}")
        messages.append((_ROLES[role], turn[text_key]))
    while messages and messages[-1][0] != "user":
        messages.pop()
    if not messages:
        raise ValueError("no user turn")
    return [_message(role, text) for role, text in messages]


def _with_own_ids(prompts: list[Prompt]) -> list[Prompt]:
    """Pairs are found by id, so an id that comes twice would mix two prompts up."""
    seen: set[str] = set()
    for prompt in prompts:
        if prompt.id in seen:
            raise OptionError(f"the prompt id {prompt.id!r} comes twice; ids must be unique")
        seen.add(prompt.id)
    return prompts

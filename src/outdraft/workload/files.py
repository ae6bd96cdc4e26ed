"""Prompts from a user's own files, in any of the usual layouts.

The layout is recognized by the first entry. An entry that cannot be read is an error that names
its line: a workload that silently lost a third of its prompts would be another workload.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from outdraft.errors import OptionError
from outdraft.workload.prompt import Message, Prompt

MAX_FILE_BYTES = 1 << 30
DEFAULT_EXPECTED_TOKENS = 128
_ROLES = {"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant",
          "assistant": "assistant", "system": "system", "bing": "assistant"}  # fmt: skip

Entry = Mapping[str, Any]
Entries = Sequence[tuple[int, Entry]]  # line, or place in a list, from 1 on


def read_prompts(path: Path) -> list[Prompt]:
    """All prompts of a .jsonl or .json file, in order."""
    entries = read_entries(path)
    if not entries:
        raise OptionError(f"{path} has no entries; give a file with at least one prompt")
    prompts = parse_prompts(entries, path)
    if prompts is None:
        keys = ", ".join(sorted(map(str, entries[0][1]))[:12])
        raise OptionError(
            f"{path}: no known layout has the keys {keys}; write lines such as "
            '{"prompt": "...", "category": "chat"} or {"messages": [...]}'
        )
    return prompts


def read_entries(path: Path) -> Entries:
    """The objects of a file: a JSON list, or one object per line."""
    text = read_text(path)
    is_list = text.lstrip().startswith("[")
    place_name = "entry" if is_list else "line"
    if is_list:
        entries = list(enumerate(_parse_json(text, f"{path}"), 1))
    else:  # not splitlines, which also splits at U+2028 and others inside a JSON string
        lines = [(place, line) for place, line in enumerate(text.split("\n"), 1) if line.strip()]
        entries = [(place, _parse_json(line, f"{path}, line {place}")) for place, line in lines]
    for place, entry in entries:
        if not isinstance(entry, dict):
            what = f"not an object but {type(entry).__name__}"
            raise OptionError(f"{path}, {place_name} {place}: {what}")
    return entries


def read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise OptionError(f"{path} is over {MAX_FILE_BYTES >> 30} GiB; take a sample of it")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not UTF-8 (byte {error.start})") from None
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error


def _parse_json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{where}: not JSON ({error})") from None


def parse_prompts(entries: Entries, path: Path) -> list[Prompt] | None:
    """The prompt of each entry, all in the layout of the first; None if that is unknown."""
    layout = _layout_of(entries[0][1])
    if layout is None:
        return None
    prompts: dict[str, Prompt] = {}
    for place, entry in entries:
        try:
            prompt = _make_prompt(layout(entry), f"{path.stem}-{place}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise OptionError(f"{path}, entry {place}: {what}") from None
        if prompt.id in prompts:  # pairs are found by id, so two prompts would be mixed up
            raise OptionError(f"the prompt id {prompt.id!r} comes twice; ids must be unique")
        prompts[prompt.id] = prompt
    return list(prompts.values())


def _layout_of(entry: Entry) -> Callable[[Entry], Entry] | None:
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
        return lambda entry: entry
    return _plain if keys & {"prompt", "text", "question"} else None


def _user_turn(text: Any) -> list[Entry]:
    return [{"role": "user", "content": text}]


def _plain(entry: Entry) -> Entry:
    key = next((key for key in ("prompt", "text", "question") if key in entry), "prompt")
    return {**entry, "messages": _user_turn(entry[key])}


def _sharegpt(entry: Entry) -> Entry:
    turns = [{"role": turn["from"], "content": turn["value"]} for turn in entry["conversations"]]
    return {**entry, "messages": turns}


def _openai_log(entry: Entry) -> Entry:
    """A logged request as it was sent: `body` (batch files) or `request`."""
    request = entry.get("body", entry.get("request"))
    if isinstance(request, str):
        request = json.loads(request)
    if not isinstance(request, dict):
        raise ValueError("the logged request is not an object")
    is_chat = "messages" in request
    return {
        "id": entry.get("custom_id"),
        "category": entry.get("category", "log"),
        "expected_tokens": request.get("max_completion_tokens", request.get("max_tokens")),
        "messages": request["messages"] if is_chat else _user_turn(request["prompt"]),
    }


def _first_turn(entry: Entry) -> Entry:
    """MT-Bench and Spec-Bench: the first turn, which is what is usually measured."""
    turn = _user_turn(entry["turns"][0])
    return {"id": entry.get("question_id"), "category": entry.get("category"), "messages": turn}


def _humaneval(entry: Entry) -> Entry:
    text = f"Complete this function. Answer with the whole code.\n\n{entry['prompt']}"
    return {"id": entry["task_id"], "category": "code", "messages": _user_turn(text)}


def _make_prompt(entry: Entry, id: str) -> Prompt:
    """The conversation up to its last user turn: the server writes the answer to that."""
    turns = [(str(turn["role"]), turn["content"]) for turn in entry["messages"]]
    if unknown := [role for role, _ in turns if role not in _ROLES]:
        raise ValueError(f"unknown role {unknown[0]!r}")
    while turns and _ROLES[turns[-1][0]] != "user":
        turns.pop()
    if not turns:
        raise ValueError("no user turn")
    expected = entry.get("expected_tokens") or DEFAULT_EXPECTED_TOKENS
    if not isinstance(expected, int) or expected < 1:
        raise ValueError(f"expected_tokens must be a whole number of at least 1, got {expected!r}")
    own_id = id if entry.get("id") is None else str(entry["id"])
    messages = tuple(Message(_ROLES[role], _plain_text(content)) for role, content in turns)
    return Prompt(own_id, str(entry.get("category") or "other"), messages, expected)


def _plain_text(content: Any) -> str:
    if isinstance(content, list):  # OpenAI's content parts
        content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
    if not isinstance(content, str) or not content.strip():
        raise ValueError(f"an empty or unreadable text: {str(content)[:40]!r}")
    return content

"""Prompts from a user's own files, in any of the usual layouts.

The layout is recognized entry by entry. An entry that cannot be read is an error that names
its line: a workload that silently lost a third of its prompts would be another workload. What is
read but left out is a note with its line.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outdraft.errors import OptionError
from outdraft.workload.layouts import Entry, layout_of, make_prompt, not_understood
from outdraft.workload.prompt import Prompt

MAX_FILE_BYTES = 1 << 30
_MAX_NOTES = 5

Entries = Sequence[tuple[str, Entry]]  # its place, such as "line 3", from 1 on


def read_prompts(path: Path, notes: list[str] | None = None) -> list[Prompt]:
    """All prompts of a .jsonl or .json file, in order. `notes` gets what was left out."""
    entries = read_entries(path)
    if not entries:
        raise OptionError(f"{path} has no entries; give a file with at least one prompt")
    prompts = parse_prompts(entries, path, notes)
    if prompts is None:
        raise OptionError(_no_layout(path, *entries[0]))
    return prompts


def _no_layout(path: Path, place: str, entry: Entry) -> str:
    keys = ", ".join(sorted(map(str, entry))[:12])
    return (
        f"{path}, {place}: no known layout has the keys {keys}; write lines such as "
        '{"prompt": "...", "category": "chat"} or {"messages": [...]}'
    )


def read_entries(path: Path) -> Entries:
    """The objects of a file: a JSON list, or one object per line."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        listed = enumerate(_parse_json(text, f"{path}"), 1)
        entries = [(f"entry {number}", entry) for number, entry in listed]
    else:  # not splitlines, which also splits at U+2028 and others inside a JSON string
        lines = [(f"line {n}", line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
        entries = [(place, _parse_json(line, f"{path}, {place}")) for place, line in lines]
    for place, entry in entries:
        if not isinstance(entry, dict):
            what = f"not an object but {type(entry).__name__}"
            raise OptionError(f"{path}, {place}: {what}")
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


def parse_prompts(
    entries: Entries, path: Path, notes: list[str] | None = None
) -> list[Prompt] | None:
    """The prompt of each entry; None if the layout of the first is unknown."""
    if layout_of(entries[0][1]) is None:
        return None
    prompts: dict[str, Prompt] = {}
    left_out: dict[str, tuple[str, str, int]] = {}  # key → first place, hint, how often
    for place, entry in entries:
        layout = layout_of(entry)
        if layout is None:
            raise OptionError(_no_layout(path, place, entry))
        try:
            prompt = make_prompt(layout(entry), f"{path.stem}-{place.split()[1]}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise OptionError(f"{path}, {place}: {what}") from None
        if prompt.id in prompts:  # pairs are found by id, so two prompts would be mixed up
            raise OptionError(
                f"{path}, {place}: the prompt id {prompt.id!r} comes twice; ids must be unique"
            )
        prompts[prompt.id] = prompt
        for key, hint in sorted(not_understood(entry)):
            first, _, count = left_out.get(key, (place, hint, 0))
            left_out[key] = first, hint, count + 1
    if notes is not None:
        notes += _notes(left_out, path)
    return list(prompts.values())


def _notes(left_out: dict[str, tuple[str, str, int]], path: Path) -> list[str]:
    notes = [
        f"{path}, {place}: {key!r} is not understood{hint}" + (f"; {count} have it" * (count > 1))
        for key, (place, hint, count) in left_out.items()
    ]
    others = list(left_out)[_MAX_NOTES:]
    more = [f"{path}: {len(others)} more are not understood: {', '.join(others)}"] if others else []
    return notes[:_MAX_NOTES] + more

"""YAML with comments, out of dictionaries and lists."""

import json
import re
from dataclasses import dataclass
from typing import Any

from outdraft.emit.quoting import comments, is_plain, quoted

_MAX_INLINE = 72
_WORD = re.compile(r"[A-Z][a-zA-Z]+|[a-z]{4,}(-[a-z]+)+")  # no need for quotes


@dataclass(frozen=True, eq=False)
class Comment:
    """A key of a dictionary, or an item of a list, that is written as a comment. Equal to nothing
    else: a text from outside must not take the place of a real key."""

    text: str


YamlMap = dict[str | Comment, Any]


class TextBlock(str):
    """A text of several lines, written as it is where that says the same."""


def yaml_lines(value: Any) -> list[str]:
    """The lines of a dictionary or a list. What is empty is left out; what is short and has no
    comments stays in one line."""
    is_list = isinstance(value, list)
    lines: list[str] = []
    for key in value:
        each = key if is_list else value[key]
        start = "-" if is_list else f"{key}:"
        if isinstance(key, Comment):
            lines += comments([key.text])
        elif each in ({}, []):
            continue
        elif isinstance(each, TextBlock) and is_plain(each):
            lines += [f"{start} |", *_indented(each.rstrip("\n").split("\n"))]
        elif isinstance(each, TextBlock) or _is_inline(each):
            is_word = isinstance(each, str) and not is_list and _WORD.fullmatch(each)
            lines.append(f"{start} {each if is_word else quoted(each)}")
        elif is_list:
            first, *more = yaml_lines(each)
            lines += [f"- {first}", *_indented(more)]
        else:
            lines += [start, *_indented(yaml_lines(each))]
    return lines


def _is_inline(value: Any) -> bool:
    """Whether it is short, without comments and texts of several lines. JSON is YAML too."""
    if not isinstance(value, dict | list):
        return not isinstance(value, Comment | TextBlock)
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return all(map(_is_inline, parts)) and len(json.dumps(value)) <= _MAX_INLINE


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]

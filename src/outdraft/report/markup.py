"""HTML and SVG as values: `tag` escapes whatever is not markup already."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

# What no HTML file may hold: control characters, and halves of surrogate pairs.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_EMPTY_TAGS = frozenset(("br", "hr", "img", "input", "link", "meta"))


class Markup(str):
    """Text that is markup already. Only `tag`, `join` and files of our own make it."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
Value: TypeAlias = str | float | bool | None


def tag(name: str, *children: Child, **attributes: Value) -> Markup:
    """`class_` is class, `stroke_width` is stroke-width; None and False leave it out."""
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY_TAGS:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    return Markup("".join(_text(each) for each in children))


def escape(text: str) -> Markup:
    return Markup(html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)))


def number(value: float) -> str:
    """Short: a hundredth of a pixel is nothing."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return escape(child)
    return "".join(_text(each) for each in child)


def _attribute(key: str, value: Value) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = value if isinstance(value, str) else number(value)
    return f' {name}="{escape(shown)}"'

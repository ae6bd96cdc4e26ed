"""HTML and SVG as values: `tag` escapes everything that is not `Markup` already."""

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

# Characters that HTML forbids: control characters and unpaired surrogates.
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_EMPTY_TAGS = frozenset(("br", "hr", "img", "input", "link", "meta"))


class Markup(str):
    """Text that is markup already. Only `tag`, `join` and our own CSS file make it."""

    __slots__ = ()


Child: TypeAlias = "str | Iterable[Child] | None"
Value: TypeAlias = str | float | bool | None


def tag(name: str, *children: Child, **attributes: Value) -> Markup:
    """`class_` is class, `stroke_width` is stroke-width; None and False leave an attribute out."""
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY_TAGS:
        return Markup(f"<{start}>")
    return Markup(f"<{start}>{join(*children)}</{name}>")


def join(*children: Child) -> Markup:
    return Markup("".join(_text(child) for child in children))


def escape(text: str) -> Markup:
    return Markup(html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)))


def number(value: float) -> str:
    """At most two decimals: a hundredth of a pixel is not visible."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _text(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    return escape(child) if isinstance(child, str) else join(*child)


def _attribute(key: str, value: Value) -> str:
    name = key.rstrip("_").replace("_", "-")
    if value is None or isinstance(value, bool):
        return f" {name}" if value else ""
    text = value if isinstance(value, str) else number(value)
    return f' {name}="{escape(text)}"'

"""One bar of memory. No text in it, so that it may be stretched; the legend has the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.figures.memory import Part
from outdraft.report.markup import Markup, tag
from outdraft.report.numbers import percent, size

_WIDTH, _HEIGHT, _GAP = 1000.0, 40.0, 3.0
_THINNEST = 4.0  # a part that is there is seen
_STRIPED = "kv"  # the large part that changes; stripes tell it apart without its colour


def memory_plot(parts: Sequence[Part], label: str) -> Markup:
    x = 0.0
    drawn = []
    for part in parts:
        if not part.num_bytes:
            continue
        wide = part.share * _WIDTH
        shown = max(wide - _GAP, _THINNEST)
        told = tag("title", f"{part.name}: {size(part.num_bytes)}, {percent(part.share)}")
        drawn.append(
            tag("rect", told, x=x, y=0, width=shown, height=_HEIGHT, class_=f"part {part.key}")
        )
        if part.key == _STRIPED:
            drawn.append(_striped(x, shown))
        x += max(wide, _THINNEST + _GAP)
    return tag("svg", drawn, viewBox=f"0 0 {max(x - _GAP, 1.0):.1f} {_HEIGHT:.0f}", role="img",
               aria_label=label, class_="bar", preserveAspectRatio="none")  # fmt: skip


def _striped(x: float, width: float) -> Markup:
    """Stripes to lay over a part."""
    lines = [
        tag("path", d=f"M{at:.0f} 0L{at - 12:.0f} {_HEIGHT:.0f}", class_="stripe")
        for at in range(int(x) + 18, int(x + width), 18)
    ]
    return tag("g", lines)

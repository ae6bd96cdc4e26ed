"""Memory of weights and KV cache with the best arm, as the plan estimates it."""

from collections.abc import Sequence
from typing import NamedTuple

from outdraft.report.layout import lead, nothing
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import percent, size
from outdraft.tune.results import MemoryResult, Results

_WIDTH, _HEIGHT, _GAP = 1000.0, 40.0, 3.0
_THINNEST = 4.0  # so that every part can be seen


class Part(NamedTuple):
    key: str  # names its colour and pattern
    name: str
    num_bytes: int
    share: float  # of the total


def memory_section(results: Results) -> Markup:
    memory = results.memory
    if memory is None:
        return nothing("The memory was not planned.")
    parts = memory_parts(memory)
    whole = f"Of {size(memory.total)}" if memory.total else "Of the weights"
    missing = overflow(memory)
    short = f" {size(missing)} more are needed than there is." if missing else ""
    entries = [
        tag(
            "div",
            tag("dt", tag("span", class_=f"swatch part {key}"), name),
            tag("dd", tag("b", size(num_bytes)), tag("span", percent(share))),
        )
        for key, name, num_bytes, share in parts
    ]
    return join(
        lead(f"{whole}, with the best arm. Planned from the model files, not measured.{short}"),
        tag(
            "figure",
            memory_plot(parts, "memory of target, draft and KV cache, and what is free"),
            tag("dl", entries, class_="memory"),
            tag("p", f"Assumed: {memory.note}.", class_="note") if memory.note else None,
        ),
    )


def memory_parts(memory: MemoryResult) -> tuple[Part, ...]:
    """In drawing order. What the plan has no name for is called other."""
    sizes = [
        ("target", "target weights", max(memory.target, 0)),
        ("draft", "draft weights", max(memory.draft, 0)),
        ("kv", "KV cache", max(memory.kv, 0)),
        ("free", "free", max(memory.free, 0)),
    ]
    named = sum(num_bytes for _, _, num_bytes in sizes)
    other = memory.total - named
    if other > 0.005 * memory.total:
        sizes.insert(3, ("other", "other", other))
    if not memory.total:  # no device is known, only the weights
        sizes = sizes[:2]
    whole = max(memory.total, named, 1)
    return tuple(Part(key, name, num_bytes, num_bytes / whole) for key, name, num_bytes in sizes)


def overflow(memory: MemoryResult) -> int:
    """Bytes that are needed beyond the total; 0 where the total is not known."""
    needed = memory.target + memory.draft + memory.kv
    return max(needed - memory.total, 0) if memory.total else 0


def memory_plot(parts: Sequence[Part], label: str) -> Markup:
    """One bar, without text, so that it can be stretched; the legend has the numbers."""
    x = 0.0
    drawn = []
    for key, name, num_bytes, share in (part for part in parts if part.num_bytes):
        room = share * _WIDTH
        width = max(room - _GAP, _THINNEST)
        title = tag("title", f"{name}: {size(num_bytes)}, {percent(share)}")
        box = {"x": x, "y": 0.0, "width": width, "height": _HEIGHT}
        drawn.append(tag("rect", title, **box, class_=f"part {key}"))
        if key == "kv":  # stripes tell it apart without colour
            drawn += [
                tag("path", d=f"M{at:.0f} 0L{at - 12:.0f} {_HEIGHT:.0f}", class_="stripe")
                for at in range(int(x) + 18, int(x + width), 18)
            ]
        x += max(room, _THINNEST + _GAP)
    return tag("svg", drawn, viewBox=f"0 0 {max(x - _GAP, 1.0):.1f} {_HEIGHT:.0f}", role="img",
               aria_label=label, class_="bar", preserveAspectRatio="none")  # fmt: skip

"""Where the memory goes."""

from __future__ import annotations

from dataclasses import dataclass

from outdraft.tune.results import MemoryResult


@dataclass(frozen=True, slots=True)
class Part:
    key: str  # names its colour and pattern
    name: str
    num_bytes: int
    share: float  # of all there is


def memory_parts(memory: MemoryResult) -> tuple[Part, ...]:
    """In the order they are laid down. What the plan has no name for is called other."""
    named = [
        ("target", "target weights", memory.target),
        ("draft", "draft weights", memory.draft),
        ("kv", "KV cache", memory.kv),
        ("free", "free", memory.free),
    ]
    told = sum(max(size, 0) for _, _, size in named)
    other = memory.total - told
    if other > 0.005 * memory.total:
        named.insert(3, ("other", "other", other))
    if not memory.total:  # only the weights are known
        named = [each for each in named if each[0] in ("target", "draft")]
    whole = max(memory.total, told, 1)
    return tuple(Part(key, name, max(size, 0), max(size, 0) / whole) for key, name, size in named)


def overflow(memory: MemoryResult) -> int:
    """Bytes that are needed and not there; none where it is not known what there is."""
    if not memory.total:
        return 0
    return max(memory.target + memory.draft + memory.kv - memory.total, 0)

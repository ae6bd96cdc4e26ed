"""Names: of an arm, of the proposer it is one draft length of, of a load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from outdraft.speculation import WITH_DRAFT, Speculation


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come: so many at a time, or so many a second."""

    concurrency: int | None = None
    rate: float | None = None
    part: str = ""  # of the run, where that is not the search itself

    @property
    def name(self) -> str:
        name = f"concurrency {self.concurrency}"
        if self.concurrency is None:
            name = f"{self.rate:g} requests/s"
        return f"{name}, {self.part}" if self.part else name


def name_of(speculation: Speculation) -> str:
    """E.g. "draft_model tiny k=5 int8": everything in which two arms of a run can differ."""
    if speculation.is_off:
        return "off"
    return _name(speculation, f"k={speculation.k}")


def proposer_name(speculation: Speculation) -> str:
    """The same without the draft length."""
    return "off" if speculation.is_off else _name(speculation, "")


def by_proposer(arms: Iterable[Speculation]) -> dict[str, list[Speculation]]:
    """Arms that differ in the draft length alone, shortest first, under their proposer's name."""
    found: dict[str, list[Speculation]] = {}
    for arm in sorted(arms, key=lambda each: each.k):
        found.setdefault(proposer_name(arm), []).append(arm)
    return found


def _name(speculation: Speculation, k: str) -> str:
    words = [speculation.method]
    if speculation.method in WITH_DRAFT and speculation.draft:
        words.append(PurePath(speculation.draft).name)
    if k:
        words.append(k)
    if speculation.quantization != "none":
        words.append(speculation.quantization)
    if speculation.rule != "coupled":
        words.append(speculation.rule)
    if speculation.schedule:
        steps = (f"{start}:{k}" for start, _, k in speculation.schedule)
        words.append(f"scheduled {','.join(steps)}")
    if speculation.draft_tensor_parallel_size is not None:
        words.append(f"tp={speculation.draft_tensor_parallel_size}")
    return " ".join(words)

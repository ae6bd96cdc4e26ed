"""Names: of an arm, of the proposer it is one draft length of, of a load."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Self

from outdraft.speculation import LOOKED_UP, OFF, Speculation

# Parts of the search under a load. In AGAIN, off gets requests of the final a second time.
FINAL, AGAIN, SCHEDULE = "final", "final again", "schedule"


@dataclass(frozen=True, slots=True)
class Load:
    """How requests come: so many at a time, or so many a second."""

    concurrency: int | None = None
    rate: float | None = None
    part: str = ""  # of the search under this load, where that is not the race
    subject: str = ""  # name of the arm that the part is about
    card: int = 0  # of the off that is measured, in a race on several
    is_again: bool = False  # the requests of a block are sent once more

    @property
    def name(self) -> str:
        is_open = self.concurrency is None
        name = f"{self.rate:g} requests/s" if is_open else f"concurrency {self.concurrency}"
        of_part = f"{name}, {self.part}" if self.part else name
        of_part = f"{of_part} of {self.subject}" if self.subject else of_part
        return f"{of_part} on card {self.card + 1}" if self.card else of_part

    def in_part(self, part: str, subject: str = "") -> Self:
        """The same load under a name of its own in the journal, with requests of its own: what is
        measured there does not change what the race measured. Parts about different arms have off
        measured anew, beside each."""
        return replace(self, part=part, subject=subject)

    def on(self, card: int) -> Self:
        """The same load and requests, for the off of another card."""
        return replace(self, card=card)

    @property
    def plan_name(self) -> str:
        """Under which its requests are planned: the same for every subject."""
        part = FINAL if self.part == AGAIN else self.part
        return replace(self, subject="", part=part, card=0).name


@cache  # asked for thousands of times in a search
def name_of(speculation: Speculation, *, has_k: bool = True, has_draft: bool = True) -> str:
    """E.g. "draft_model tiny k=5 int8": everything in which two arms of a run can differ."""
    if speculation.is_off:
        return "off"
    words = [speculation.method]
    if has_draft and speculation.draft and speculation.method not in LOOKED_UP:
        words.append(PurePath(speculation.draft).name)
    if has_k and not speculation.is_auto:
        words.append(f"k={speculation.k}")
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


def proposer_name(speculation: Speculation) -> str:
    """The same without the draft length."""
    return name_of(speculation, has_k=False)


def by_proposer(arms: Iterable[Speculation]) -> dict[str, list[Speculation]]:
    """Arms that differ in the draft length alone, shortest first, under their proposer's name."""
    members: dict[str, list[Speculation]] = {}
    for arm in sorted(arms, key=lambda each: each.k):
        members.setdefault(proposer_name(arm), []).append(arm)
    return members


def short_names(arms: Sequence[Speculation]) -> dict[str, str]:
    """Without the draft, where that makes no two arms the same."""
    short = {name_of(arm): name_of(arm, has_draft=False) for arm in (OFF, *arms)}
    every = list(short.values())
    return {name: each if every.count(each) == 1 else name for name, each in short.items()}

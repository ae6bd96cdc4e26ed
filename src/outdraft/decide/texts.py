"""Whether an arm writes the text that it should: the baseline's.

Floating point alone makes greedy texts of the same server differ now and then: another batch size
means another order of summation, and a near-tie falls the other way. So the baseline's texts are
compared with its own, for the same requests at another batch size and another moment. That
agreement is the floor, and an arm that is clearly below it writes something else.

Counted are identical texts, and texts that begin alike: near-ties rarely come early, so beginnings
still tell where hardly any long text stays identical. Both are tested against the floor by Fisher's
exact test, at `LEVEL` each: in four looks less than 1 % of the arms that write the same are blamed,
however often texts differ by nature (at most 0.1 % in benchmarks/texts.py).
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median_low
from typing import Self

from outdraft.stats.exact import chance_of_so_few

LEVEL = 0.0025
BEGINNING = 40  # characters
_ENOUGH = 12  # texts for a doubt: with a fifth that differ by nature, 1 % have a false one
_ENOUGH_BEGINNINGS = 3  # near-ties rarely come early, so few texts say much
_POSSIBLE = 0.1  # a floor that makes so few texts at least this likely explains them


def first_difference(one: str, other: str) -> int:
    """How many characters are the same; where one text ends, the other goes on differently."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(frozen=True, slots=True)
class Difference:
    """Two texts to the same request, around the place where they part. They come from outside."""

    prompt_id: str
    category: str
    at: int  # characters that are the same
    baseline: str
    candidate: str

    def __str__(self) -> str:
        """In one line, safe to print."""
        place = f"prompt {self.prompt_id!r} from character {self.at} on"
        return f"{place}: {self.candidate!r} instead of {self.baseline!r}"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Pairs of greedy texts to the same requests."""

    num_compared: int
    num_identical: int
    first_differences: tuple[int, ...] = ()  # characters into the text, of those that differ
    example: Difference | None = None  # the one that parts first

    def __add__(self, other: Self) -> Self:
        """Of both together."""
        examples = [each.example for each in (self, other) if each.example is not None]
        return replace(
            self,
            num_compared=self.num_compared + other.num_compared,
            num_identical=self.num_identical + other.num_identical,
            first_differences=self.first_differences + other.first_differences,
            example=min(examples, key=lambda each: each.at, default=None),
        )

    @property
    def share(self) -> float:
        return self.num_identical / self.num_compared if self.num_compared else 1.0

    @property
    def num_alike(self) -> int:
        """Those that are identical, or begin so."""
        return self.num_identical + sum(at >= BEGINNING for at in self.first_differences)

    @property
    def places(self) -> str:
        """Where those that differ part, in words; empty where all are identical."""
        if not self.first_differences:
            return ""
        middle, first = median_low(self.first_differences), min(self.first_differences)
        return f"from character {middle} on in the median, the earliest from {first}"


class TextFinding(StrEnum):
    NONE = "none"  # nothing was compared
    SAME = "same"  # not clearly fewer than the floor
    DOUBTFUL = "doubtful"  # most texts differ, and no floor says that they do anyway
    OTHER = "other"  # clearly fewer than the floor


def judge_texts(texts: Agreement | None, floor: Agreement | None) -> TextFinding:
    """`floor`: the baseline's texts and its own, sent again; None where that was not measured."""
    if texts is None or not texts.num_compared:
        return TextFinding.NONE
    num, identical, alike = texts.num_compared, texts.num_identical, texts.num_alike
    chance = 0.0
    if floor is not None and floor.num_compared:
        chance = chance_of_so_few(identical, num, floor.num_identical, floor.num_compared)
        of_alike = chance_of_so_few(alike, num, floor.num_alike, floor.num_compared)
        if min(chance, of_alike) < LEVEL:
            return TextFinding.OTHER
    is_explained = chance >= _POSSIBLE
    few_alike = num >= _ENOUGH_BEGINNINGS and 2 * alike < num
    few_identical = num >= _ENOUGH and 2 * identical < num and not is_explained
    return TextFinding.DOUBTFUL if few_alike or few_identical else TextFinding.SAME


def counts_text(texts: Agreement | None, floor: Agreement | None) -> str:
    """E.g. `60 of 60 greedy texts are the baseline's; its own, sent again, 16 of 16`."""
    if texts is None:
        return "texts were not compared: both arms have none to the same greedy request"
    words = f"{texts.num_identical} of {texts.num_compared} greedy texts are the baseline's"
    if floor is not None:
        words += f"; its own, sent again, {floor.num_identical} of {floor.num_compared}"
    elif texts.first_differences:
        words += "; how many of its own are, was not measured"
    return words

"""Texts whose acceptance is planted, token by token.

Under coupled verification a draft guesses the same token at the same place whoever asks, so that
being right is a property of the text: every place has a number of chance, and a guess is right
where that lies below the planted rate. All policies see the same texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outdraft.engine.controller import LookupDraft

Floats = NDArray[np.float64]

DEEPEST, LONGEST = 8, 16  # tokens of a draft, of a lookup
DECAY = 0.97  # of a draft's rate with each token that it guessed itself
# How sure a draft is of tokens that are right, and of those that are not: the share of each grade.
# As seen of the shipped head on prompts for code.
RIGHT = (0.05, 0.05, 0.08, 0.20, 0.17, 0.24, 0.14, 0.07)
WRONG = (0.28, 0.19, 0.22, 0.19, 0.07, 0.03, 0.01, 0.01)
SPURIOUS, SPURIOUS_RATE = 0.15, 0.2  # lookups where nothing is copied: how often, how good


@dataclass(slots=True)
class Text:
    """One request. `right` and `looked_up`: tokens that a draft at this place gets accepted."""

    id: int
    length: int
    temperature: float
    prompt: int
    right: NDArray[np.int64]
    looked_up: NDArray[np.int64]
    match: NDArray[np.int64]  # tokens that a lookup matched; 0: it found nothing
    is_right: NDArray[np.bool_]  # (depth, place): a draft's guess, if those before it were right
    grades: NDArray[np.int64]  # (2, place): of a guess that is wrong, and of one that is right
    is_turncoat: bool = False
    at: int = 0
    read: int = 0  # by the draft
    drafted: list[int] = field(default_factory=list)  # places of the last three drafts

    @property
    def context(self) -> int:
        return self.prompt + self.at

    @property
    def room(self) -> int:
        return self.length - self.at - 1

    @property
    def lookups(self) -> tuple[LookupDraft, ...]:
        match = int(self.match[self.at])
        return (LookupDraft("ngram", LONGEST, match),) if match else ()

    def acceptable(self, proposer: str, k: int) -> int:
        """Tokens of a draft of k that will be accepted here."""
        if self.is_turncoat and proposer != "ngram":
            is_trusted = sum(place > self.at - 40 for place in self.drafted) < 3
            return min(k, int(is_trusted))
        table = self.looked_up if proposer == "ngram" else self.right
        return min(int(table[self.at]), k)

    def written(self, k: int) -> list[int]:
        """Grades of a draft of k. A turncoat is always sure."""
        if self.is_turncoat:
            return [len(RIGHT) - 1] * k
        places = range(self.at, min(self.at + k, self.length))
        return [
            int(self.grades[int(self.is_right[depth, place]), place])
            for depth, place in enumerate(places)
        ]

    def advance(self, proposer: str | None, accepted: int) -> None:
        if proposer == "head":
            self.drafted = [*self.drafted[-2:], self.at]
        self.at += accepted + 1
        if proposer == "head":
            self.read = self.at


def plant(
    id: int,
    chance: np.random.Generator,
    rates: Floats,
    *,
    temperature: float = 0.0,
    copied: NDArray[np.bool_] | None = None,
    copied_rate: float = 0.97,
    is_turncoat: bool = False,
) -> Text:
    """A text of len(rates) tokens; `copied`: places that its prompt has too, or seems to have."""
    length = len(rates)
    copied = np.zeros(length, bool) if copied is None else copied
    guesses = _guesses(chance.random(length), rates, DEEPEST, DECAY)
    looked_up = _run_lengths(
        _guesses(chance.random(length), np.where(copied, copied_rate, SPURIOUS_RATE), LONGEST, 1.0)
    )
    stretch, since = np.zeros(length, np.int64), 0
    for place in range(length):
        since = since + 1 if copied[place] else 0
        stretch[place] = since
    spurious = (chance.random(length) < SPURIOUS) * chance.integers(2, 4, length)
    match = np.where(stretch > 2, np.minimum(stretch, 12), np.where(copied, 0, spurious))
    prompt = int(chance.integers(50, 800))
    sure = chance.random(length)
    grades = np.stack([np.searchsorted(np.cumsum(each)[:-1], sure) for each in (WRONG, RIGHT)])
    right = _run_lengths(guesses)
    return Text(
        id, length, temperature, prompt, right, looked_up, match, guesses.T, grades, is_turncoat
    )


def _guesses(u: Floats, rates: Floats, deepest: int, decay: float) -> NDArray[np.bool_]:
    """(place, depth): whether a guess is right."""
    return u[:, None] < rates[:, None] * decay ** np.arange(min(deepest, len(u)))


def _run_lengths(guesses: NDArray[np.bool_]) -> NDArray[np.int64]:
    """At every place, how many guesses in a row are right."""
    length, deepest = guesses.shape
    alive, runs = np.ones(length, bool), np.zeros(length, np.int64)
    for depth in range(deepest):
        guess = np.zeros(length, bool)
        guess[: length - depth] = guesses[depth:, depth]
        alive &= guess
        runs += alive
    return runs

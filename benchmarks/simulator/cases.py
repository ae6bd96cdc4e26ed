"""The planted cases: who writes what, where, how many at a time, how wrong the cost table is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from outdraft.step_costs import RoundCosts

from .machines import MACHINES, Bias
from .texts import Floats, Text, plant

Chance = np.random.Generator
# (chance, number of the text, share of the work at which it is expected) → the text
Author = Callable[[Chance, int, float], Text]

OPTIMISTIC = Bias(all=0.9, slope=0.8, drafting=0.85)  # costs are told too low
PESSIMISTIC = Bias(all=1.1, slope=1.2, drafting=1.2)
TRUE = Bias()


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    machine: str
    author: Author
    concurrency: tuple[int, ...]  # one after the other, equal shares of the work
    bias: Bias = TRUE
    tokens: int = 0  # of all texts together; 0: by the concurrency
    is_mixed: bool = False  # several kinds of texts or loads in one run
    later: str = ""  # the machine in the second half, where it is another

    @property
    def num_tokens(self) -> int:
        return self.tokens or 3000 + 500 * max(self.concurrency)

    def truth(self, done: float) -> RoundCosts:
        return MACHINES[self.later if self.later and done > 0.5 else self.machine]

    @property
    def told(self) -> RoundCosts:
        """What policies are told that rounds cost."""
        return self.bias.told(MACHINES[self.machine])

    def at_a_time(self, done: float) -> int:
        return self.concurrency[min(int(done * len(self.concurrency)), len(self.concurrency) - 1)]

    def texts(self, seed: int) -> Iterator[Text]:
        """The same for every policy."""
        expected = 275.0  # tokens of a text
        number = 0
        while True:
            chance = np.random.default_rng([seed, number])
            share = min(number * expected / self.num_tokens, 1.0)
            yield self.author(chance, number, share)
            number += 1


def _length(chance: Chance) -> int:
    return int(chance.integers(50, 501))


def _around(chance: Chance, mean: float, strength: float = 20.0) -> float:
    return float(chance.beta(mean * strength, (1 - mean) * strength))


def stationary(mean: float, temperature: float = 0.0, strength: float = 20.0) -> Author:
    """Each text has one rate, around the mean."""

    def author(chance: Chance, number: int, share: float) -> Text:
        rates = np.full(_length(chance), _around(chance, mean, strength))
        return plant(number, chance, rates, temperature=temperature)

    return author


def mixture(*parts: tuple[float, float, float]) -> Author:
    """(share of the texts, mean rate, temperature) of each kind."""

    def author(chance: Chance, number: int, share: float) -> Text:
        which = chance.choice(len(parts), p=[each[0] for each in parts])
        return stationary(*parts[which][1:])(chance, number, share)

    return author


def drifting(low: float, high: float) -> Author:
    """From high to low and back in the course of the run, within texts too."""

    def author(chance: Chance, number: int, share: float) -> Text:
        length, offset = _length(chance), chance.normal(0, 0.04)
        shares = share + np.linspace(0, 0.08, length)
        rates = low + (high - low) * (0.5 + 0.5 * np.cos(2 * np.pi * shares)) + offset
        return plant(number, chance, np.clip(rates, 0.01, 0.99))

    return author


def _stretches(chance: Chance, length: int, first: float, second: float) -> Floats:
    """1 and 0 in turns, in stretches of these mean lengths."""
    state, kinds = int(chance.random() < first / (first + second)), list[float]()
    while len(kinds) < length:
        kinds += [float(state)] * (1 + int(chance.exponential(first if state else second)))
        state = 1 - state
    return np.array(kinds[:length])


def bursty(good: float, bad: float, stretch: float) -> Author:
    """Within a text, stretches of high and of low rates."""

    def author(chance: Chance, number: int, share: float) -> Text:
        kinds = _stretches(chance, _length(chance), stretch, stretch)
        return plant(number, chance, np.where(kinds > 0, good, bad))

    return author


def copying(share_of_texts: float, rate: float) -> Author:
    """Texts that copy long passages of their prompt, among others that do not."""

    def author(chance: Chance, number: int, share: float) -> Text:
        length = _length(chance)
        copies = chance.random() < share_of_texts
        copied = _stretches(chance, length, 60, 15) > 0 if copies else np.zeros(length, bool)
        rates = np.where(copied, min(rate + 0.1, 0.95), _around(chance, rate))
        return plant(number, chance, rates, copied=copied)

    return author


def baited(first: float, then: float, num_tokens: int) -> Author:
    """Good at the start of each text, bad from then on (or the other way round)."""

    def author(chance: Chance, number: int, share: float) -> Text:
        length = _length(chance)
        return plant(number, chance, np.where(np.arange(length) < num_tokens, first, then))

    return author


def periodic(good: float, bad: float, on: int, off: int) -> Author:
    """The same few good tokens and many bad ones over and over, all texts alike."""

    def author(chance: Chance, number: int, share: float) -> Text:
        places = np.arange(_length(chance)) % (on + off)
        return plant(number, chance, np.where(places < on, good, bad))

    return author


def false_copies(chance: Chance, number: int, share: float) -> Text:
    """Long matches after which something else follows."""
    copied = _stretches(chance, length := _length(chance), 60, 15) > 0
    return plant(number, chance, np.full(length, 0.05), copied=copied, copied_rate=0.1)


def turncoat(chance: Chance, number: int, share: float) -> Text:
    """Looks at what the policy does: one token is right for three drafts after a pause of 40
    tokens, none for all that follow."""
    return plant(number, chance, np.full(_length(chance), 0.5), is_turncoat=True)


MIX = mixture((0.6, 0.8, 0.0), (0.4, 0.15, 1.0))
HIDDEN = mixture((0.5, 0.85, 0.0), (0.5, 0.08, 0.0))

CASES = (
    *(
        Case(f"stationary {mean}, {at} at a time", machine, stationary(mean), (at,), bias)
        for machine, at, mean, bias in (
            ("cpu", 1, 0.7, OPTIMISTIC), ("cpu", 4, 0.7, PESSIMISTIC), ("cpu", 16, 0.7, OPTIMISTIC),
            ("gpu", 1, 0.7, PESSIMISTIC), ("gpu", 16, 0.7, OPTIMISTIC),
            ("gpu", 64, 0.7, OPTIMISTIC), ("gpu", 16, 0.93, PESSIMISTIC),
            ("saturated", 16, 0.7, OPTIMISTIC), ("saturated", 64, 0.9, PESSIMISTIC),
            ("cpu", 1, 0.1, OPTIMISTIC), ("gpu", 16, 0.1, OPTIMISTIC),
            ("saturated", 16, 0.1, OPTIMISTIC),
        )
    ),
    *(
        Case(f"60/40 of temperatures, {at} at a time", machine, MIX, (at,), bias, is_mixed=True)
        for machine, at, bias in (
            ("cpu", 1, PESSIMISTIC), ("cpu", 4, OPTIMISTIC), ("cpu", 16, OPTIMISTIC),
            ("gpu", 16, OPTIMISTIC), ("gpu", 64, PESSIMISTIC),
        )
    ),
    Case("two kinds at one temperature, 4", "cpu", HIDDEN, (4,), OPTIMISTIC, is_mixed=True),
    Case("two kinds at one temperature, 32", "gpu", HIDDEN, (32,), PESSIMISTIC, is_mixed=True),
    Case("copying and not, 1", "cpu", copying(0.6, 0.5), (1,), OPTIMISTIC, is_mixed=True),
    Case("copying and not, 8", "cpu", copying(0.6, 0.5), (8,), PESSIMISTIC, is_mixed=True),
    Case("copying and not, 32", "gpu", copying(0.6, 0.5), (32,), OPTIMISTIC, is_mixed=True),
    Case("load goes up and down", "cpu", stationary(0.65), (1, 16, 4, 32, 2), OPTIMISTIC, 12000,
         is_mixed=True),
    Case("load goes up and down, 60/40", "gpu", MIX, (4, 128, 16, 64, 1), OPTIMISTIC, 40000,
         is_mixed=True),
    Case("drifting 0.9 to 0.1, 1", "cpu", drifting(0.1, 0.9), (1,), OPTIMISTIC, 8000),
    Case("drifting 0.9 to 0.1, 32", "gpu", drifting(0.1, 0.9), (32,), PESSIMISTIC),
    Case("bursts of 60 tokens, 1", "cpu", bursty(0.92, 0.1, 60), (1,), PESSIMISTIC),
    Case("bursts of 60 tokens, 16", "gpu", bursty(0.92, 0.1, 60), (16,), OPTIMISTIC),
    Case("bursts of 15 tokens, 4", "cpu", bursty(0.9, 0.05, 15), (4,), OPTIMISTIC),
    Case("adversary: good start, 4", "cpu", baited(0.95, 0.03, 24), (4,), OPTIMISTIC),
    Case("adversary: good start, 32", "gpu", baited(0.95, 0.03, 24), (32,), OPTIMISTIC),
    Case("adversary: good end, 4", "cpu", baited(0.05, 0.9, 60), (4,), OPTIMISTIC),
    Case("adversary: turncoat, 1", "cpu", turncoat, (1,), OPTIMISTIC),
    Case("adversary: turncoat, 16", "saturated", turncoat, (16,), OPTIMISTIC),
    Case("adversary: turncoat, 32", "gpu", turncoat, (32,), OPTIMISTIC),
    Case("adversary: 12 good, 28 bad, 4", "cpu", periodic(0.95, 0.03, 12, 28), (4,), OPTIMISTIC),
    Case("adversary: 12 good, 28 bad, 16", "gpu", periodic(0.95, 0.03, 12, 28), (16,), OPTIMISTIC),
    Case("adversary: matches lead astray, 4", "cpu", false_copies, (4,), OPTIMISTIC),
    Case("adversary: matches lead astray, 32", "saturated", false_copies, (32,), OPTIMISTIC),
    Case("the machine gets slower half way", "gpu", stationary(0.6), (32,), OPTIMISTIC,
         later="gpu, shared"),
    Case("adversary: nothing is ever right", "saturated", stationary(0.01), (32,), OPTIMISTIC),
)  # fmt: skip

"""What a fake server is going to do for a request: when each chunk comes and what is accepted.

Pure and seeded. What is planted is exact: with `speedup` 1.3, a request's time per output token
is that of the same prompt at 1.0 divided by 1.3, but for the noise that is asked for. So a test
knows the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any

Acceptance = float | Mapping[float, float] | Callable[[str, float], float]
Timing = Callable[[str, float, int], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: str
    temperature: float
    max_tokens: int
    seed: int
    ignore_eos: bool
    count: int  # requests before it
    running: int  # requests at this moment, this one included


@dataclass(frozen=True, slots=True)
class Played:
    at_s: tuple[float, ...]  # when each chunk is due, after the request came
    tokens: tuple[int, ...]  # how many each carries
    rounds: tuple[tuple[int, int], ...]  # (drafted, accepted) of each chunk but the first
    finish_reason: str

    @property
    def num_tokens(self) -> int:
        return sum(self.tokens)


@dataclass(frozen=True, slots=True)
class Script:
    """Times in seconds.

    `prompt_spread` and `noise` are the sigma of a log-normal factor. The first depends on the
    prompt alone, so two servers agree on which prompts are slow; the second on `seed` and the
    request's number. A request of the tail takes `tail_factor` times as long in everything.
    `timing` replaces (ttft_s, tpot_s) by a function of prompt, temperature and request number.
    """

    ttft_s: float = 0.02
    tpot_s: float = 0.005
    timing: Timing | None = None
    prompt_spread: float = 0.0
    noise: float = 0.0
    tail_share: float = 0.0
    tail_factor: float = 1.0
    k: int = 0  # draft length; 0: one token in a chunk, speculation is off
    # Chance that a draft token is accepted if those before it were: one number, by temperature
    # (the nearest), or a function of prompt and temperature.
    acceptance: Acceptance = 0.7
    speedup: float | Callable[[int], float] = 1.0  # or a function of the requests running
    # Time of a round in units of tpot_s, whatever it emits: the speedup then comes from
    # acceptance. None: a chunk takes the time of its tokens.
    round_cost: float | None = None
    seed: int = 0

    def play(self, asked: Asked) -> Played:
        draw = Random(f"{self.seed}/{asked.count}")
        ttft, tpot = self._times(asked, draw)
        length = self._length(asked)
        tokens, rounds = [1], []
        while (left := length - sum(tokens)) > 0:
            drafted = min(self.k, left - 1)
            accepted = self._accepted(asked, drafted, draw)
            rounds.append((drafted, accepted))
            tokens.append(accepted + 1)
        cost = self.round_cost
        gaps = [tpot * (size if cost is None else cost) for size in tokens[1:]]
        return Played(
            at_s=tuple(accumulate(gaps, initial=ttft)),
            tokens=tuple(tokens),
            rounds=tuple(rounds),
            finish_reason="length" if length == asked.max_tokens else "stop",
        )

    def _times(self, asked: Asked, draw: Random) -> tuple[float, float]:
        ttft, tpot = self.ttft_s, self.tpot_s
        if self.timing is not None:
            ttft, tpot = self.timing(asked.prompt, asked.temperature, asked.count)
        factor = math.exp(Random(asked.prompt).gauss(0, self.prompt_spread))
        factor *= math.exp(draw.gauss(0, self.noise))
        if draw.random() < self.tail_share:
            factor *= self.tail_factor
        speedup = self.speedup(asked.running) if callable(self.speedup) else self.speedup
        return ttft * factor, tpot * factor / speedup

    def _length(self, asked: Asked) -> int:
        """Texts have a length of their own, the prompt's, unless they are told to go on."""
        if asked.ignore_eos:
            return max(1, asked.max_tokens)
        natural = Random(f"length of {asked.prompt}").randint(8, 64)
        return max(1, min(asked.max_tokens, natural))

    def _accepted(self, asked: Asked, drafted: int, draw: Random) -> int:
        chance = acceptance_at(self.acceptance, asked.prompt, asked.temperature)
        accepted = 0
        while accepted < drafted and draw.random() < chance:
            accepted += 1
        return accepted


def acceptance_at(acceptance: Acceptance, prompt: str, temperature: float) -> float:
    if isinstance(acceptance, Mapping):
        return acceptance[min(acceptance, key=lambda each: abs(each - temperature))]
    return acceptance(prompt, temperature) if callable(acceptance) else acceptance


def words_of(asked: Asked, num_tokens: int) -> list[str]:
    """The text: one word a token, from prompt, seed and temperature, never from speculation."""
    seed = asked.seed if asked.temperature > 0 else 0
    draw = Random(f"{seed}/{asked.temperature}/{asked.prompt}")
    return [f" {draw.randrange(1000):03}" for _ in range(num_tokens)]


def speculative_decoding(rounds: tuple[tuple[int, int], ...], k: int) -> dict[str, Any]:
    """A request's acceptance under the names that vLLM and our own server use."""
    drafted = [each for each in rounds if each[0]]
    proposed = sum(each[0] for each in drafted)
    accepted = sum(each[1] for each in drafted)
    counts = [sum(each[1] == number for each in drafted) for number in range(k + 1)]
    return {
        "mean_acceptance_length": 1 + accepted / len(drafted) if drafted else None,
        "draft_acceptance_rate": accepted / proposed if proposed else None,
        "acceptance_histogram": counts,
        "num_spec_steps": len(drafted),
        "num_steps_without_draft": len(rounds) - len(drafted),
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": proposed,
        "num_spec_tokens": k,
    }

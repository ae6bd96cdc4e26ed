"""What a fake server does for a request: when each chunk comes, and what is accepted.

Pure and seeded. Planted effects are exact: with `speedup` 1.3, the time per output token is that of
the same prompt at 1.0 divided by 1.3, apart from the noise that the script adds. So a test knows
the true value.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random

from outdraft.acceptance import Acceptance

Chance = float | Mapping[float, float] | Callable[[str, float], float]
Timing = Callable[[str, float, int], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class ScriptedRequest:
    prompt: str
    temperature: float
    max_tokens: int
    seed: int
    ignore_eos: bool
    number: int  # requests before it
    num_running: int  # this one included

    def words(self, num_tokens: int) -> list[str]:
        """The answer: one word per token, from prompt, seed and temperature alone."""
        seed = self.seed if self.temperature > 0 else 0
        draw = Random(f"{seed}/{self.temperature}/{self.prompt}")
        return [f" {int(1000 * draw.random()):03}" for _ in range(num_tokens)]


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    at_s: tuple[float, ...]  # when each chunk is due, after the request came
    tokens: tuple[int, ...]  # in each chunk
    rounds: tuple[tuple[int, int], ...]  # (drafted, accepted) of each chunk after the first
    finish_reason: str
    words: tuple[str, ...] = ()  # one for each token

    @property
    def num_tokens(self) -> int:
        return sum(self.tokens)

    @property
    def acceptance(self) -> Acceptance:
        counts = Acceptance()
        for drafted, accepted in self.rounds:
            counts.record(drafted, accepted)
        return counts


@dataclass(frozen=True, slots=True)
class Script:
    """Times in seconds.

    `prompt_spread` and `noise` are the sigma of a log-normal factor. The first depends on the
    prompt alone, so two servers agree on which prompts are slow; the second on `seed` and the
    request's number. A request of the tail takes `tail_factor` times as long in everything.
    `timing` replaces (ttft_s, tpot_s) by a function of prompt, temperature and request number.

    `is_junk` answers with words that have nothing to do with the prompt. `near_ties` is the share
    of answers, drawn by `seed` and the request's number, that go another way somewhere in the
    middle, as floating point makes real servers do.
    """

    ttft_s: float = 0.02
    tpot_s: float = 0.005
    timing: Timing | None = None
    prompt_spread: float = 0.0
    noise: float = 0.0
    tail_share: float = 0.0
    tail_factor: float = 1.0
    k: int = 0  # draft length; 0: speculation is off, one token per chunk
    # Chance that a draft token is accepted if those before it were: one number, by temperature
    # (the nearest), or a function of prompt and temperature.
    acceptance: Chance = 0.7
    speedup: float | Callable[[int], float] = 1.0  # or a function of the requests running
    # Time of a round in units of tpot_s, whatever it emits: the speedup then comes from
    # acceptance. None: a chunk takes the time of its tokens.
    round_cost: float | None = None
    is_junk: bool = False
    near_ties: float = 0.0
    seed: int = 0

    def play(self, request: ScriptedRequest) -> ScriptedAnswer:
        draw = Random(f"{self.seed}/{request.number}")
        ttft, tpot = self._times(request, draw)
        length = self._length(request)
        chance = chance_at(self.acceptance, request.prompt, request.temperature)
        tokens, rounds, left = [1], [], length - 1
        while left > 0:
            drafted, accepted = min(self.k, left - 1), 0
            while accepted < drafted and draw.random() < chance:
                accepted += 1
            rounds.append((drafted, accepted))
            tokens.append(accepted + 1)
            left -= accepted + 1
        cost = self.round_cost
        gaps = [tpot * (size if cost is None else cost) for size in tokens[1:]]
        return ScriptedAnswer(
            at_s=tuple(accumulate(gaps, initial=ttft)),
            tokens=tuple(tokens),
            rounds=tuple(rounds),
            finish_reason="length" if length == request.max_tokens else "stop",
            words=tuple(self._words(request, length)),
        )

    def _words(self, request: ScriptedRequest, length: int) -> list[str]:
        draw, other = Random(f"words/{self.seed}/{request.number}"), replace(request, prompt="")
        if self.is_junk:
            return other.words(length)
        at = draw.randrange(length) if draw.random() < self.near_ties else length
        return [*request.words(at), *replace(other, prompt=f"{draw.random()}").words(length - at)]

    def _times(self, request: ScriptedRequest, draw: Random) -> tuple[float, float]:
        ttft, tpot = self.ttft_s, self.tpot_s
        if self.timing is not None:
            ttft, tpot = self.timing(request.prompt, request.temperature, request.number)
        factor = math.exp(Random(request.prompt).gauss(0, self.prompt_spread))
        factor *= math.exp(draw.gauss(0, self.noise))
        if draw.random() < self.tail_share:
            factor *= self.tail_factor
        speedup = self.speedup(request.num_running) if callable(self.speedup) else self.speedup
        return ttft * factor, tpot * factor / speedup

    def _length(self, request: ScriptedRequest) -> int:
        """Every prompt has an answer of its own length, unless `ignore_eos` asks for all tokens."""
        if request.ignore_eos:
            return max(1, request.max_tokens)
        natural = Random(f"length of {request.prompt}").randint(8, 64)
        return max(1, min(request.max_tokens, natural))


def chance_at(acceptance: Chance, prompt: str, temperature: float) -> float:
    if isinstance(acceptance, Mapping):
        return acceptance[min(acceptance, key=lambda each: abs(each - temperature))]
    return acceptance(prompt, temperature) if callable(acceptance) else acceptance

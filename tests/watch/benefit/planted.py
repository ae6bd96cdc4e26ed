"""Windows of synthetic fleets with a planted speedup: noise, drift, loads that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from outdraft.acceptance import Acceptance
from outdraft.observe.reading import Growth
from outdraft.watch.findings import Benefit
from outdraft.workload.running import running_band

EVERY_S, NUM_LOOKS = 5.0, 60  # five minutes
STEP_S = 0.03
Speedup = Callable[[float], float]  # by load


def plain_pace(load: float) -> float:
    """Seconds of a text for each token: a step is slower with more texts in it."""
    return STEP_S * (0.8 + 0.2 * load)


def constant(value: float) -> Speedup:
    return lambda load: value


@dataclass(frozen=True, slots=True)
class World:
    """What all replicas of a window share."""

    draw: np.random.Generator
    drift: np.ndarray  # of the pace, by look

    @classmethod
    def made(cls, seed: int, drift: float = 0.0) -> World:
        """`drift`: the machines get slower by about so much during the window, in a random way."""
        draw = np.random.default_rng(seed)
        steps = draw.normal(0, drift / NUM_LOOKS**0.5, NUM_LOOKS)
        return cls(draw, np.exp(np.cumsum(steps)))

    def replica(
        self,
        speedup: Speedup,
        loads: Sequence[float],
        *,
        noise: float = 0.3,
        own_speed: float = 1.0,
    ) -> list[Growth]:
        """Requests that ended between looks. `noise`: of the pace from look to look."""
        rows = []
        for at, drift in enumerate(self.drift):
            load = float(self.draw.choice(loads)) * float(self.draw.uniform(0.9, 1.1))
            load = max(load, 1.0)
            pace = plain_pace(load) / speedup(load) * drift * own_speed
            pace *= float(np.exp(self.draw.normal(-(noise**2) / 2, noise)))
            tokens = float(self.draw.poisson(load * EVERY_S / plain_pace(load) / 60) * 60)
            rows.append(
                growth(at, load, {"decode_tokens": tokens, "decode_seconds": tokens * pace})
            )
        return rows

    def with_canary(
        self,
        speedup: Speedup,
        loads: Sequence[float],
        *,
        noise: float = 0.3,
        prompts: float = 0.0,
        is_stopped: bool = False,
    ) -> list[Growth]:
        """A server of ours. `prompts`: share of the time in steps that read prompts too.
        `is_stopped`: it drafts in slices only."""
        rows = []
        for at, drift in enumerate(self.drift):
            load = round(float(self.draw.choice(loads)))
            band, pace = running_band(load), plain_pace(load) * drift
            slices = {}
            in_slices = float(self.draw.choice([0.0, 0.2], p=[0.5, 0.5]))  # seconds
            usual = pace if is_stopped else pace / speedup(load)
            for side, spent, own in (
                ("tried", in_slices, pace / speedup(load)) if is_stopped
                else ("plain", in_slices, pace),
                ("stopped" if is_stopped else "speculating",
                 EVERY_S * (1 - prompts) - in_slices, usual),
            ):  # fmt: skip
                faster = float(np.exp(self.draw.normal(-(noise**2) / 2, noise)))
                slices[side, band] = spent * load / own * faster, spent * load
            # A step with prompts takes three times as long, and writes as much as any other.
            tokens = EVERY_S * prompts * load / (3 * usual)
            mixed = "mixed stopped" if is_stopped else "mixed"
            slices[mixed, band] = tokens, EVERY_S * prompts * load
            rows.append(growth(at, load, {}, slices=slices))
        return rows

    def drafting(
        self, rate: float, k: int, loads: Sequence[float], *, spread: float = 0.08
    ) -> list[Growth]:
        """Rounds that accept each token with a chance of about `rate`."""
        rows = []
        for at in range(NUM_LOOKS):
            load = float(self.draw.choice(loads))
            chance = min(max(float(self.draw.normal(rate, spread)), 0.02), 0.98)
            rounds = int(load * EVERY_S / 0.05)
            guesses = self.draw.random((rounds, k)) < chance
            right = np.cumprod(guesses, axis=1)
            counts = Acceptance(
                rounds, rounds * k, int(right.sum()), 0, right.sum(0).tolist(), [rounds] * k
            )
            tokens = {"num_tokens": float(rounds + right.sum()), "num_requests": 0.0}
            rows.append(growth(at, load, tokens, acceptance=counts))
        return rows


def growth(
    at: int,
    load: float,
    counters: dict[str, float],
    *,
    slices: dict[tuple[str, str], tuple[float, float]] | None = None,
    acceptance: Acceptance | None = None,
) -> Growth:
    gauges = {"running_requests": load * EVERY_S}
    start = 1e9 + at * EVERY_S
    return Growth(start, start + EVERY_S, counters, gauges, {}, acceptance, slices=slices or {})


@dataclass(frozen=True, slots=True)
class Score:
    coverage: float
    bias: float  # of the estimate, relative


def score(made: Callable[[int], Benefit | None], truth: float, count: int = 800) -> Score:
    """Over so many windows: how often the interval has the truth, and the mean error."""
    every = [each for seed in range(count) if (each := made(seed)) is not None]
    assert len(every) == count
    inside = sum((each.low or 9) <= truth <= (each.high or 0) for each in every)
    logs = np.log([each.estimate / truth for each in every])
    return Score(inside / count, float(np.exp(logs.mean()) - 1))

"""Machines: what rounds really cost, and what a controller is told that they cost."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from outdraft.step_costs import ProposerCosts, RoundCosts

MS = 1e-3
_CPU = {1: 16.0, 2: 16.3, 4: 16.6, 6: 17.0, 8: 20.0, 16: 36.0, 32: 66.0, 64: 128.0, 256: 500.0}
_GPU = {1: 7.0, 32: 7.3, 64: 7.7, 128: 8.6, 192: 10.0, 256: 12.2, 512: 22.0, 1024: 42.0}
_FULL = {1: 5.0, 8: 9.0, 16: 15.0, 64: 55.0, 256: 215.0, 1024: 855.0}

MACHINES = {
    # The shape of SmolLM2-135M in float32 on 2 cores: flat up to 6 tokens, then a line.
    "cpu": RoundCosts(
        {n: ms * MS for n, ms in _CPU.items()}, 128, 0.05 * MS, 0.0, 0.0005 * MS,
        {"head": ProposerCosts(0.3 * MS, 0.3 * MS, 0.15 * MS, 0.02 * MS)},
    ),
    # An 8B model on one large GPU: reading weights takes 7 ms, arithmetic shows from 128 tokens.
    "gpu": RoundCosts(
        {n: ms * MS for n, ms in _GPU.items()}, 128, 0.01 * MS, 0.00002 * MS, 0.0,
        {"head": ProposerCosts(0.5 * MS, 0.4 * MS, 0.004 * MS, 0.0005 * MS)},
    ),
    # Every token costs its full price: nothing is gained by verifying several together.
    "saturated": RoundCosts(
        {n: ms * MS for n, ms in _FULL.items()}, 128, 0.05 * MS, 0.0, 0.0002 * MS,
        {"head": ProposerCosts(0.3 * MS, 0.3 * MS, 0.08 * MS, 0.01 * MS)},
    ),
}  # fmt: skip
# The GPU while somebody else uses it too: all is slower, arithmetic most of all.
MACHINES["gpu, shared"] = replace(
    MACHINES["gpu"],
    by_tokens={n: (1.2 * 7.0 + 4 * (ms - 7.0)) * MS for n, ms in _GPU.items()},
    proposers={"head": MACHINES["gpu"].proposers["head"].times(1.5)},
)

NOISE = 0.06  # of a step's time, relative
OUTLIERS, OUTLIER = 0.01, 2.0  # steps that something else held up


@dataclass(frozen=True, slots=True)
class Bias:
    """What the table that policies are given is wrong by, as factors."""

    all: float = 1.0
    slope: float = 1.0  # of what a step costs above the smallest
    drafting: float = 1.0

    def told(self, truth: RoundCosts) -> RoundCosts:
        least = min(truth.by_tokens.values())
        wrong = {
            tokens: self.all * (least + self.slope * (seconds - least))
            for tokens, seconds in truth.by_tokens.items()
        }
        factor = self.all * self.drafting
        proposers = {name: each.times(factor) for name, each in truth.proposers.items()}
        return replace(truth, by_tokens=wrong, proposers=proposers)


def noise(chance: np.random.Generator) -> float:
    held_up = OUTLIER if chance.random() < OUTLIERS else 1.0
    return float(np.exp(NOISE * chance.standard_normal() - NOISE**2 / 2)) * held_up

"""The bootstrap in portions."""

from __future__ import annotations

import numpy as np
import pytest

from outdraft.stats import bootstrap
from outdraft.stats.bootstrap import standard_error
from outdraft.stats.clusters import Clusters, Counts, Floats

EACH = np.arange(48)
NOISE = np.random.default_rng(3)
VALUES = NOISE.normal(size=(2, 48)) + 2 * NOISE.normal(size=12)[EACH % 12]  # prompts differ
SHAPES = {
    "blocks of 6": Clusters(EACH // 6, EACH),
    "blocks of 8": Clusters(EACH // 8, EACH),
    "prompts recur": Clusters(EACH // 6, EACH % 12),
    "other prompts recur": Clusters(EACH // 6, EACH % 24),
}


def error(shape: str, row: int, draws: int = 200, seed: int = 0) -> tuple[float, float]:
    def mean(counts: Counts) -> Floats:
        means: Floats = counts @ VALUES[row] / counts.sum(axis=1)
        return means

    return standard_error(SHAPES[shape], mean, draws=draws, seed=seed)


def test_portions_together_are_as_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large to be held at once: other draws, the same error but for chance."""
    whole = {shape: error(shape, 0, draws=4000)[0] for shape in SHAPES}
    monkeypatch.setattr(bootstrap, "_CELLS_AT_ONCE", 48 * 1000)
    for shape in SHAPES:
        assert error(shape, 0, draws=4000)[0] == pytest.approx(whole[shape], rel=0.1)

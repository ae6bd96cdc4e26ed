"""What is believed of acceptance follows what was planted."""

from __future__ import annotations

import numpy as np
import pytest

from outdraft.engine.controller.posterior import Posterior, band_of

KIND = "head"


def watched(rates: list[float], rounds: int, k: int = 4) -> Posterior:
    """Each sequence is watched for so many rounds, at its rate."""
    chance, posterior = np.random.default_rng(0), Posterior(8)
    kind, proposer = posterior.kind(KIND, 0.4), posterior.proposer(KIND, len(rates))
    num = len(rates)
    for now in range(1, rounds + 1):
        accepted = np.array([min(int(chance.geometric(1 - each)) - 1, k) for each in rates])
        posterior.observe(
            np.full(num, kind),
            (np.full(num, proposer), np.arange(num)),
            np.zeros(num, np.int64),
            np.full(num, k),
            accepted,
            np.zeros(num, bool),
            now,
        )
    return posterior


def first(posterior: Posterior, slot: int, band: int = 0) -> float:
    return float(posterior.gains(0, 0, np.array([slot]), np.array([band]))[0, 0])


def test_gains_fall_with_the_position() -> None:
    gains = watched([0.9, 0.2, 0.6], 5).gains(0, 0, np.arange(3), np.zeros(3, np.int64))
    assert (np.diff(gains, axis=1) <= 0).all()
    assert ((gains > 0) & (gains < 1)).all()


def test_sequences_are_told_apart() -> None:
    posterior = watched([0.9, 0.1] * 8, 30)
    assert first(posterior, 0) > 0.75
    assert first(posterior, 1) < 0.3


def test_a_new_sequence_is_expected_to_be_as_the_fleet() -> None:
    for rate in (0.2, 0.8):
        posterior = watched([rate] * 16, 16)
        posterior.proposer(KIND, 32)
        assert first(posterior, 20) == pytest.approx(rate, abs=0.08)


def test_bands_differ_and_unknown_ones_follow_the_others() -> None:
    posterior = watched([0.1] * 16, 16)
    posterior.proposer(KIND, 32)
    assert first(posterior, 20, band=0) < 0.2
    assert first(posterior, 20, band=2) < 0.45  # nothing was seen there: 0.6 at first


def test_a_released_slot_is_as_new() -> None:
    posterior = watched([0.9, 0.05], 30)
    posterior.frailties.clear(1)
    assert posterior.frailties.means[0].tolist()[1] == 1.0


@pytest.mark.parametrize(
    ("temperature", "band"), [(0.0, 0), (0.3, 1), (0.4, 1), (0.7, 2), (1.0, 3), (1.5, 4)]
)
def test_bands(temperature: float, band: int) -> None:
    assert band_of(temperature) == band

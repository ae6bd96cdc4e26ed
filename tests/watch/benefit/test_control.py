"""Plain replicas as the control: planted speedups are found, whatever the loads."""

from __future__ import annotations

import math

import numpy as np
import pytest

from outdraft.observe.reading import Growth
from outdraft.watch.benefit.control import control_benefit, control_by_load
from outdraft.watch.findings import Benefit, Source
from tests.watch.benefit.planted import World, constant, score

OFF = constant(1.0)
HEAVY, LIGHT = (4, 6, 8, 12), (1, 2, 4, 6, 8)


def window(
    seed: int,
    *,
    true: float = 1.5,
    drift: float = 0.0,
    loads: tuple[tuple[int, ...], tuple[int, ...]] = ((4,), (4,)),
    replicas: tuple[int, int] = (1, 1),
    own: float = 0.0,
) -> Benefit | None:
    """`own`: what replicas differ by."""
    world = World.made(seed, drift)

    def side(at: int) -> dict[str, list[Growth]]:
        made = {}
        for number in range(replicas[at]):
            speed = float(np.exp(world.draw.normal(0, own)))
            speedup = OFF if at else constant(true)
            made[f"{at}-{number}"] = world.replica(speedup, loads[at], own_speed=speed)
        return made

    return control_benefit(side(0), side(1))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loads": (HEAVY, LIGHT), "true": 1.2},
        {"loads": ((2, 4, 8), (2, 3, 4, 7)), "drift": 0.3, "true": 0.8},
        pytest.param({"replicas": (4, 3), "own": 0.1}, marks=pytest.mark.slow),
    ],
    ids=["heavy noise", "other loads", "drift", "replicas that differ"],
)
def test_planted_speedups_are_in_their_intervals(options: dict[str, float]) -> None:
    found = score(lambda seed: window(seed, **options), options.get("true", 1.5), 500)  # type: ignore[arg-type]
    assert 0.93 <= found.coverage <= 0.97
    assert abs(found.bias) < 0.01


def test_without_matching_the_sign_would_be_another() -> None:
    """The speculating replica gets most of the load: its texts are slower, and it pays."""
    for seed in range(20):
        world = World.made(seed)
        own = world.replica(constant(1.3), (12,), noise=0.1)
        each_load = ((1,), (1, 2), (1, 2, 8, 12))
        others = [world.replica(OFF, loads, noise=0.1) for loads in each_load]
        together = Growth.total(each for row in others for each in row)
        alone = Growth.total(own)
        assert alone is not None
        assert together is not None
        assert (together.seconds_per_token or 9) / (alone.seconds_per_token or 0) < 0.9
        found = control_benefit({"own": own}, dict(zip("abc", others, strict=True)))
        assert found is not None
        assert found.is_gain
        assert found.estimate == pytest.approx(1.3, rel=0.1)


def test_by_load() -> None:
    """It pays for few texts at a time and loses with many."""
    world = World.made(0)
    own = world.replica(lambda load: 1.6 if load < 5 else 0.7, (2, 12), noise=0.1)
    others = world.replica(OFF, (2, 12), noise=0.1)
    found = {each.part: each for each in control_by_load({"own": own}, {"other": others})}
    assert found["2 at a time"].is_gain
    assert found["9-16 at a time"].is_loss
    assert found["2 at a time"].estimate == pytest.approx(1.6, rel=0.1)


def test_what_it_says() -> None:
    one, several = window(1), window(1, replicas=(3, 1))
    assert one is not None
    assert several is not None
    assert one.source is Source.CONTROL
    assert "equally fast" in one.assumes
    assert "equally fast" not in several.assumes
    assert one.running == pytest.approx(4, rel=0.05)
    assert one.end - one.start == pytest.approx(300)


def test_nothing_is_said_without_a_shared_load() -> None:
    world = World.made(0)
    own, others = world.replica(constant(1.5), (2,)), world.replica(OFF, (16,))
    assert control_benefit({"own": own}, {"other": others}) is None
    assert control_benefit({"own": own}, {}) is None
    assert control_benefit({}, {"other": others}) is None
    silent = [Growth(each.start, each.end, each.counters, {}, {}, None) for each in own]
    assert control_benefit({"own": silent}, {"other": own}) is None


def test_a_few_looks_give_no_interval() -> None:
    world = World.made(0)
    own, others = world.replica(constant(1.5), (4,)), world.replica(OFF, (4,))
    found = control_benefit({"own": own[:4]}, {"other": others[:4]})
    assert found is not None
    assert found.low is None
    assert found.high is None
    assert math.isfinite(found.estimate)

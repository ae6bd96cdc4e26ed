"""Slices against decoding outside of them: planted speedups are found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outdraft.observe.reading import Growth
from outdraft.watch.benefit.canary import canary_benefit, canary_by_part
from outdraft.watch.findings import Benefit, Source
from tests.watch.benefit.planted import World, constant, growth, score


def window(
    seed: int, *, true: float = 1.5, drift: float = 0.0, replicas: int = 1, **options: Any
) -> Benefit | None:
    world = World.made(seed, drift)
    options = {"loads": (4,), **options}
    rows = (world.with_canary(constant(true), **options) for _ in range(replicas))
    return canary_benefit({str(number): row for number, row in enumerate(rows)})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 1.5),
        ({"loads": (1, 2, 4, 7), "noise": 0.2, "true": 0.8}, 0.8),
        ({"loads": (2, 4), "drift": 0.3, "noise": 0.2}, 1.5),
        # Of a second 0.3 are in steps with prompts: 0.1 for their tokens, 0.2 for the prompts.
        ({"prompts": 0.3}, 0.8 * 1.5 + 0.2),
        ({"is_stopped": True}, 1.5),
        ({"is_stopped": True, "loads": (1, 2, 4, 7), "noise": 0.2, "true": 0.8}, 0.8),
        ({"is_stopped": True, "prompts": 0.3}, 1 / (0.8 / 1.5 + 0.2)),
        pytest.param({"replicas": 3}, 1.5, marks=pytest.mark.slow),
    ],
    ids=[
        "heavy noise",
        "several loads",
        "drift",
        "prompts in between",
        "stopped",
        "stopped, several loads",
        "stopped, prompts",
        "replicas",
    ],
)
def test_planted_speedups_are_in_their_intervals(options: dict[str, Any], expected: float) -> None:
    found = score(lambda seed: window(seed, **options), expected, 500)
    assert 0.93 <= found.coverage <= 0.97
    assert abs(found.bias) < 0.01


@pytest.mark.parametrize("count", [3, 6])
def test_few_slices_make_a_wide_interval_that_holds(count: int) -> None:
    def few(seed: int) -> Benefit | None:
        rows = World.made(seed).with_canary(constant(1.5), (4,), noise=0.1)
        slices = [at for at, each in enumerate(rows) if each.slices["plain", "3-4"][1] > 0]
        kept = set(slices[:: 16 // count][:count])
        none = {("plain", "3-4"): (0.0, 0.0)}
        return canary_benefit(
            {
                "a": [
                    each if at in kept else replace(each, slices={**each.slices, **none})
                    for at, each in enumerate(rows)
                ]
            }
        )

    found = score(few, 1.5, 500)
    assert 0.93 <= found.coverage <= 0.97
    assert abs(found.bias) < 0.01


def test_a_mix_of_loads_does_not_turn_the_sign() -> None:
    """Slices come with more texts at a time, where all texts are slower: it looks like a gain."""
    rows = []
    for at in range(40):
        few, many = (20.0, 2.0), (30.0, 9.0)  # tokens, seconds
        slices = {("speculating", "1"): (200.0, 25.0), ("speculating", "9-16"): (20.0, 7.5)}
        slices |= {("plain", "1"): few if at % 9 == 0 else (0.0, 0.0), ("plain", "9-16"): many}
        rows.append(growth(at, 4.0, {}, slices=slices))
    found = canary_benefit({"a": rows})
    assert found is not None
    assert (found.estimate, found.is_loss) == (pytest.approx(26 / 32.5), True)
    by_load = {each.part: each.estimate for each in canary_by_part({"a": rows})}
    assert by_load == pytest.approx({"1 at a time": 0.8, "9-16 at a time": 0.8})


def test_by_load() -> None:
    world = World.made(3)
    rows = world.with_canary(lambda load: 1.6 if load < 5 else 0.6, (1, 8), noise=0.05)
    found = {each.part: each for each in canary_by_part({"a": rows})}
    assert found["1 at a time"].is_gain
    assert found["5-8 at a time"].is_loss


def test_a_window_in_which_it_was_turned_off() -> None:
    """Each half is compared within itself: the load of the second one is another."""
    world = World.made(5)
    before = world.with_canary(constant(1.5), (4,), noise=0.1)
    after = world.with_canary(constant(1.5), (8,), noise=0.1, is_stopped=True)
    whole = [*before[:30], *after[30:]]
    found = canary_benefit({"a": whole})
    assert found is not None
    assert found.is_stopped
    assert "with drafts" in found.assumes
    assert found.estimate == pytest.approx(1.5, rel=0.1)
    assert found.is_gain
    parts = {each.part: each.is_stopped for each in canary_by_part({"a": whole})}
    assert parts == {"3-4 at a time": False, "5-8 at a time": True}
    shares = {each.part: each.share for each in canary_by_part({"a": whole})}
    assert sum(share or 0 for share in shares.values()) == pytest.approx(1)


def test_turned_off_without_slices_says_nothing() -> None:
    rows = [growth(at, 1.0, {}, slices={("stopped", "1"): (50.0, 2.0)}) for at in range(30)]
    assert canary_benefit({"a": rows}) is None


def test_what_it_says() -> None:
    found = window(1)
    assert found is not None
    assert (found.source, found.running) == (Source.CANARY, pytest.approx(4))
    assert "without drafts" in found.assumes
    assert not found.is_stopped
    assert found.low is not None


def test_a_few_slices_give_no_interval_and_none_give_nothing() -> None:
    world = World.made(0)
    rows = world.with_canary(constant(1.5), (4,))
    with_slices = [each for each in rows if each.slices["plain", "3-4"][1] > 0]
    few = canary_benefit({"a": with_slices[:2]})
    assert few is not None
    assert (few.low, few.high) == (None, None)
    without = [each for each in rows if not each.slices["plain", "3-4"][1] > 0]
    assert canary_benefit({"a": without}) is None
    assert canary_benefit({"a": [growth(0, 1.0, {})]}) is None
    assert canary_benefit({}) is None


def test_a_plain_server_has_no_canary() -> None:
    rows = [growth(at, 1.0, {}, slices={("plain", "1"): (50.0, 2.0)}) for at in range(30)]
    assert canary_benefit({"a": rows}) is None


def of_temperatures(seed: int, hot: float, is_stopped: bool = False) -> list[Growth]:
    """Texts of two temperatures in the same steps; drafts for the hot ones make all of them `hot`
    times as fast."""
    world, rows = World.made(seed), []
    for each, cold, warm in zip(
        world.with_canary(constant(1.5), (4,), noise=0.1),
        world.with_canary(constant(1.4), (4,), noise=0.1),
        world.with_canary(constant(hot), (4,), noise=0.1, is_stopped=is_stopped),
        strict=True,
    ):
        bands = {
            (side, f"temperature {band}"): spent
            for band, of_band in (("0", cold), ("1+", warm))
            for (side, _), spent in of_band.slices.items()
        }
        rows.append(replace(each, slices={**each.slices, **bands}))
    return rows


@pytest.mark.parametrize("is_stopped", [False, True])
def test_by_temperature(is_stopped: bool) -> None:
    rows = of_temperatures(3, 0.7, is_stopped)
    found = {each.part: each for each in canary_by_part({"a": rows})}
    assert found.keys() == {"3-4 at a time", "temperature 0", "temperature 1+"}
    assert found["temperature 0"].is_gain
    assert found["temperature 1+"].is_loss
    assert found["temperature 1+"].is_stopped == is_stopped
    assert found["temperature 1+"].share == pytest.approx(1, abs=0.6)
    whole = canary_benefit({"a": rows})
    assert whole is not None
    assert whole.estimate == pytest.approx(1.5, rel=0.1)  # without what is counted by temperature
    loads = [
        {key: each.slices[key] for key in each.slices if "temp" not in key[1]} for each in rows
    ]
    alone = [replace(each, slices=only) for each, only in zip(rows, loads, strict=True)]
    assert canary_benefit({"a": alone}) == whole

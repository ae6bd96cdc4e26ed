"""Which steps count for which side."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.engine.outputs import StepStats
from outdraft.server.sides import Sides

STEP = StepStats(3, 15, 0, [4, 4, 4], 7, 7, 4, 0.1)
PLAIN = replace(STEP, num_tokens=3, draft_lengths=[0, 0, 0], num_emitted=3, num_decoded=3, max_k=0)
MIXED = replace(STEP, num_prompt_tokens=20, num_emitted=8, num_decoded=7)


def test_the_first_step_after_a_switch_counts_for_nothing() -> None:
    sides = Sides()
    for _ in range(5):
        sides.observe(STEP, in_slice=False)
    for _ in range(3):
        sides.observe(PLAIN, in_slice=True)
    sides.observe(STEP, in_slice=False)
    assert sides.by_load.tokens == {("speculating", "3-4"): 4 * 7, ("plain", "3-4"): 2 * 3}
    assert sides.by_load.seconds == pytest.approx(
        {("speculating", "3-4"): 4 * 0.3, ("plain", "3-4"): 2 * 0.3}
    )


def test_prompts_in_a_step_are_a_side_of_their_own_and_no_switch() -> None:
    sides = Sides()
    for stats in (STEP, STEP, MIXED, STEP):
        sides.observe(stats, in_slice=False)
    assert sides.by_load.tokens == {("speculating", "3-4"): 14, ("mixed", "3-4"): 7}


def test_a_prompt_alone_makes_nobody_wait() -> None:
    sides = Sides()
    sides.observe(replace(MIXED, draft_lengths=[], num_decoded=0), in_slice=False)
    assert not sides.by_load.tokens


def test_where_the_schedule_is_off_nothing_is_compared() -> None:
    """A slice there would say nothing, and such steps are no slice."""
    sides = Sides()
    for stats in (STEP, PLAIN, PLAIN, STEP, STEP):
        sides.observe(stats, in_slice=False)
    assert sides.by_load.tokens == {("speculating", "3-4"): 7}


def test_where_drafts_are_turned_off_slices_have_them() -> None:
    sides = Sides()
    usual, tried = replace(PLAIN, is_stopped=True), replace(STEP, is_stopped=True)
    for _ in range(5):
        sides.observe(usual, in_slice=False)
    for _ in range(3):
        sides.observe(tried, in_slice=True)
    sides.observe(replace(MIXED, is_stopped=True, max_k=0), in_slice=False)
    assert sides.by_load.tokens == {
        ("stopped", "3-4"): 4 * 3, ("tried", "3-4"): 2 * 7, ("mixed stopped", "3-4"): 7,
    }  # fmt: skip


def test_a_slice_in_which_nobody_wants_drafts_tries_nothing() -> None:
    sides = Sides()
    for _ in range(3):
        sides.observe(replace(PLAIN, is_stopped=True), in_slice=True)
    assert not sides.by_load.tokens


def test_a_server_without_speculation_is_plain() -> None:
    sides = Sides(speculates=False)
    for _ in range(3):
        sides.observe(PLAIN, in_slice=False)
    assert sides.by_load.tokens == {("plain", "3-4"): 6}


COLD_AND_HOT = {"temperatures": (0.0, 0.0, 1.5), "stopped": (False, False, False)}


def spent(sides: Sides) -> dict[tuple[str, str], float]:
    return dict(sides.by_temperature.tokens)


def test_by_temperature_all_texts_of_a_step_count() -> None:
    sides = Sides()
    usual = replace(STEP, **COLD_AND_HOT)  # type: ignore[arg-type]
    for _ in range(5):
        sides.observe(usual, in_slice=False)
    hot_off = replace(usual, num_decoded=6)
    for _ in range(3):
        sides.observe(hot_off, in_slice=True, band="1+")
    assert spent(sides) == {
        ("speculating", "0"): 28, ("speculating", "1+"): 28, ("plain", "1+"): 12,
    }  # fmt: skip
    assert sides.by_temperature.seconds["plain", "1+"] == pytest.approx(0.6)
    assert sides.by_load.tokens == {("speculating", "3-4"): 28}  # others went on
    for _ in range(3):
        sides.observe(replace(PLAIN, **COLD_AND_HOT), in_slice=True)  # type: ignore[arg-type]
    assert sides.by_load.tokens["plain", "3-4"] == 6
    assert spent(sides)["plain", "1+"] == 12


def test_a_slice_of_the_only_band_is_one_for_everybody_too() -> None:
    sides = Sides()
    alone = replace(PLAIN, temperatures=(1.5,) * 3, stopped=(False,) * 3)
    for _ in range(3):
        sides.observe(alone, in_slice=True, band="1+")
    assert spent(sides) == {("plain", "1+"): 6}
    assert sides.by_load.tokens == {("plain", "3-4"): 6}


def test_a_band_that_is_off_is_tried() -> None:
    sides = Sides()
    stopped = {"temperatures": (0.0, 0.0, 1.5), "stopped": (False, False, True)}
    usual = replace(STEP, **stopped)  # type: ignore[arg-type]
    for _ in range(3):
        sides.observe(usual, in_slice=False)
    for _ in range(3):
        sides.observe(usual, in_slice=True, band="1+")
    assert spent(sides) == {
        ("speculating", "0"): 14, ("stopped", "1+"): 14, ("tried", "1+"): 14,
    }  # fmt: skip
    alone = replace(PLAIN, temperatures=(1.5,) * 3, stopped=(True,) * 3)
    for _ in range(3):
        sides.observe(alone, in_slice=False)
    assert spent(sides)["stopped", "1+"] == 14 + 6
    assert sides.by_load.tokens == {("speculating", "3-4"): 14}


def test_turned_off_altogether_bands_say_nothing() -> None:
    sides = Sides()
    off = replace(PLAIN, is_stopped=True, temperatures=(0.0, 0.0, 1.5), stopped=(True,) * 3)
    for _ in range(3):
        sides.observe(off, in_slice=False)
    assert spent(sides) == {}

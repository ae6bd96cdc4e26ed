"""Short runs of the simulator of `benchmarks/controller.py`, which has all cases."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from benchmarks.simulator.cases import CASES, Case
from benchmarks.simulator.comparison import OFF, OURS, run_case

from outdraft.engine.native.library import library

if library() is None:
    pytest.skip("the library is not compiled here", allow_module_level=True)


def short(name: str, machine: str) -> Case:
    [case] = [each for each in CASES if (each.name, each.machine) == (name, machine)]
    return replace(case, tokens=2000)


def over(case: Case, policy: str, other: str) -> float:
    return run_case(case, policy, 0).throughput / run_case(case, other, 0).throughput


@pytest.mark.parametrize(
    ("name", "machine", "other", "least"),
    [
        ("copying and not, 1", "cpu", "head k=3", 1.1),
        ("60/40 of temperatures, 4 at a time", "cpu", "head k=1", 1.0),
        ("stationary 0.7, 16 at a time", "gpu", "head k=4", 0.95),
        ("adversary: nothing is ever right", "saturated", OFF, 0.97),
        ("adversary: matches lead astray, 4", "cpu", OFF, 0.96),
    ],
)
def test_holds_its_own(name: str, machine: str, other: str, least: float) -> None:
    assert over(short(name, machine), OURS, other) > least


def test_every_policy_sees_the_same_texts() -> None:
    case = short("60/40 of temperatures, 4 at a time", "cpu")
    first, second = (
        [(each.length, each.temperature, each.right.tolist()) for each in islice(texts, 5)]
        for texts in (case.texts(1), case.texts(1))
    )
    assert first == second


def test_nobody_beats_the_clairvoyant() -> None:
    case = short("60/40 of temperatures, 4 at a time", "cpu")
    assert all(over(case, each, "clairvoyant") < 1 for each in (OURS, OFF, "head k=2"))

"""Planted agreements and floors, on both sides of the rule."""

from __future__ import annotations

from random import Random

import pytest

from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import Agreement, Difference, TextFinding, judge_texts
from outdraft.decide.verdict import decide

from .evidences import about

LATE, EARLY = 200, 3  # characters: near-ties, and junk


def agreement(num_identical: int, num_compared: int, at: int = LATE) -> Agreement:
    example = Difference("code-1", "code", at, "def f():", "zzz \x1b[31m<b>")
    places = (at,) * (num_compared - num_identical)
    return Agreement(num_compared, num_identical, places, example if places else None)


@pytest.mark.parametrize(
    ("texts", "floor", "expected"),
    [
        (None, None, TextFinding.NONE),
        (Agreement(0, 0), None, TextFinding.NONE),
        (agreement(60, 60), None, TextFinding.SAME),
        (agreement(0, 24), agreement(16, 16), TextFinding.OTHER),
        (agreement(0, 24), agreement(3, 3), TextFinding.OTHER),
        (agreement(30, 60), agreement(16, 16), TextFinding.OTHER),
        (agreement(52, 60), agreement(15, 16), TextFinding.SAME),
        # Fewer than off's own, but so few texts do not make it clear.
        (agreement(20, 28), agreement(8, 8), TextFinding.SAME),
        (agreement(0, 5), agreement(1, 1), TextFinding.SAME),
        (agreement(0, 30), agreement(1, 1), TextFinding.DOUBTFUL),
        # Without a floor, by the half.
        (agreement(6, 12), None, TextFinding.SAME),
        (agreement(5, 12), None, TextFinding.DOUBTFUL),
        (agreement(0, 11), None, TextFinding.SAME),
        (agreement(0, 60), Agreement(0, 0), TextFinding.DOUBTFUL),
        # Long texts seldom stay the same to the end: the floor explains it, and beginnings tell.
        (agreement(12, 60), agreement(4, 16), TextFinding.SAME),
        (agreement(12, 60, EARLY), agreement(4, 16), TextFinding.OTHER),
        # A baseline that never answers the same twice proves nothing, and nothing ships by it.
        (agreement(0, 60, EARLY), agreement(0, 16, EARLY), TextFinding.DOUBTFUL),
    ],
)
def test_both_sides(
    texts: Agreement | None, floor: Agreement | None, expected: TextFinding
) -> None:
    assert judge_texts(texts, floor) is expected


def test_junk_at_twice_the_speed_is_not_shipped() -> None:
    fast = Evidence(about(2.0), texts=agreement(0, 24, 0), text_floor=agreement(16, 16))
    verdict = decide(fast)
    assert verdict.decision == "DON'T SHIP"
    assert verdict.reasons[0] == (
        "the candidate writes other texts: 0 of 24 greedy texts are the baseline's; its own, sent "
        "again, 16 of 16"
    )
    assert verdict.reasons[1] == (
        "e.g. prompt 'code-1' from character 0 on: 'zzz \\x1b[31m<b>' instead of 'def f():'"
    )
    assert {check.name: check.state for check in verdict.checks}["same_text"] == "fail"


def test_what_is_known_is_said() -> None:
    def told(**fields: Agreement) -> str:
        verdict = decide(Evidence(about(2.0), **fields))
        assert verdict.decision == "SHIP"
        return " | ".join(verdict.reasons)

    assert "texts were not compared: both arms have none" in told()
    assert "text" not in told(texts=agreement(60, 60))
    few = told(texts=agreement(20, 28), text_floor=agreement(8, 8))
    assert "20 of 28 greedy texts are the baseline's; its own, sent again, 8 of 8; those" in few
    assert "from character 200 on in the median" in few
    assert "of its own are, was not measured" in told(texts=agreement(50, 60))


def test_half_of_the_texts_without_a_floor_is_no_ship() -> None:
    verdict = decide(Evidence(about(2.0), texts=agreement(20, 60)))
    assert verdict.decision == "INCONCLUSIVE"
    assert "may write other texts: 20 of 60" in verdict.reasons[0]
    assert decide(Evidence(about(0.5), texts=agreement(20, 60))).decision == "DON'T SHIP"


def test_a_lossy_rule_is_not_judged_by_its_texts() -> None:
    lossy = Evidence(
        about(2.0), texts=agreement(0, 60), text_floor=agreement(16, 16), is_lossy=True
    )
    verdict = decide(lossy)
    assert verdict.decision == "SHIP"
    assert "texts differ by design (a lossy rule) and are not judged" in verdict.reasons
    assert {check.name: check.state for check in verdict.checks}["same_text"] == "warn"


@pytest.mark.parametrize("chance", [0.02, 0.1, 0.2, 0.5])
def test_near_ties_are_not_blamed(chance: float) -> None:
    """1,000 comparisons with four looks each, of arms that write the baseline's text as well as it
    does itself. benchmarks/texts.py has more of them."""
    draw, num_blamed = Random(1), 0
    for _ in range(1000):
        floor = agreement(sum(draw.random() >= chance for _ in range(16)), 16)
        same = [draw.random() >= chance for _ in range(240)]
        looks = (agreement(sum(same[:num]), num) for num in (60, 120, 180, 240))
        num_blamed += any(judge_texts(each, floor) is TextFinding.OTHER for each in looks)
    assert num_blamed <= 10

"""How time is shared, and what is said about it beforehand."""

from __future__ import annotations

import pytest

from outdraft.distill.options import STAGES
from outdraft.distill.timing import Speeds, duration_text, outlook, outlook_text, share_time

SLOW, FAST = Speeds(200.0, 3.0), Speeds(40_000.0, 0.05)


def test_a_stage_alone_has_all_of_the_time() -> None:
    assert share_time(180, ["data"]).data_s == 180
    assert share_time(180, ["evaluate"]).evaluate_s == 180


def test_together_training_has_most() -> None:
    shares = share_time(1000, STAGES)
    assert shares.evaluate_s == pytest.approx(100)
    assert shares.data_s == pytest.approx(315)


def test_what_a_slow_machine_can_do_is_said_with_what_would_help() -> None:
    found = outlook(180, STAGES, SLOW, max_answer_tokens=4000)
    assert found.answer_tokens == 4000
    assert found.is_limited
    assert found.steps == 31
    text = outlook_text(found, SLOW, on_cpu=True)
    assert text == (
        "in 3m this machine writes about 4,000 answer tokens (140 a second, the number that was "
        "given) and trains for about 31 steps (3 s each); a draft learns little in fewer than 200 "
        "steps: give --budget 22m, or a GPU (--device cuda)"
    )
    enough = outlook(22 * 60, STAGES, SLOW)
    assert enough.steps is not None
    assert enough.steps >= 200
    assert enough.budget_for_steps_s is None


def test_a_limit_of_tokens_that_time_does_not_reach_is_no_limit() -> None:
    found = outlook(180, STAGES, SLOW, max_answer_tokens=10**6)
    assert not found.is_limited
    assert found.answer_tokens is not None
    assert found.answer_tokens < 140 * 60
    assert "the number that was given" not in outlook_text(found, SLOW, on_cpu=True)


def test_a_fast_machine_needs_no_advice() -> None:
    found = outlook(1800, STAGES, FAST)
    text = outlook_text(found, FAST, on_cpu=False)
    assert text.startswith("in 30m this machine writes about ")
    assert "learns little" not in text


def test_steps_that_were_asked_for_are_enough() -> None:
    found = outlook(180, STAGES, SLOW, max_steps=2)
    assert (found.steps, found.budget_for_steps_s) == (2, None)


def test_a_stage_is_spoken_of_alone() -> None:
    writing, training = Speeds(200.0, None), Speeds(None, 3.0)
    data = outlook_text(outlook(60, ["data"], writing), writing, on_cpu=True)
    assert data == "in 60s this machine writes about 5,900 answer tokens (140 a second)"
    train = outlook_text(outlook(3600, ["train"], training), training, on_cpu=True)
    assert train == "in 60m this machine trains for about 960 steps (3 s each)"


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.2, "4s"), (99, "99s"), (101, "2m"), (7200, "2h"), (12_000, "3.4h")]
)
def test_durations_are_written_as_the_option_takes_them(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text

"""What one request is told about itself: pure sums, no server."""

from __future__ import annotations

from typing import Any

import pytest

from outdraft.acceptance import Acceptance
from outdraft.engine.outputs import Generation
from outdraft.server.request_metrics import request_metrics, speculation_metrics

MS = 1_000_000


def acceptance(*rounds: tuple[int, int]) -> Acceptance:
    counted = Acceptance()
    for num_drafted, num_accepted in rounds:
        counted.record(num_drafted, num_accepted)
    return counted


def generation(
    num_tokens: int, *times: int, rounds: tuple[tuple[int, int], ...] = ()
) -> Generation:
    added, started, first, finished = times
    return Generation(
        "r", 0, 5, seed=0, tokens=[0] * num_tokens, acceptance=acceptance(*rounds),
        added_ns=added * MS, started_ns=started * MS, first_token_ns=first * MS,
        finished_ns=finished * MS,
    )  # fmt: skip


def test_times_of_one_text() -> None:
    found = request_metrics([generation(11, 100, 103, 110, 130)], 4)
    assert found["queue_time_ms"] == 3
    assert found["time_to_first_token_ms"] == 7
    assert found["generation_time_ms"] == 20
    assert found["mean_itl_ms"] == 2  # ten tokens behind the first
    assert found["tokens_per_second"] == 500


def test_times_of_several_texts_span_them() -> None:
    choices = [generation(6, 100, 105, 110, 130), generation(6, 100, 104, 112, 150)]
    found = request_metrics(choices, 4)
    assert found["queue_time_ms"] == 4
    assert found["time_to_first_token_ms"] == 6
    assert found["generation_time_ms"] == 40
    assert found["mean_itl_ms"] == 4


def test_one_token_has_no_speed() -> None:
    found = request_metrics([generation(1, 100, 103, 110, 110)], 4)
    assert (found["mean_itl_ms"], found["tokens_per_second"]) == (None, None)


def test_choices_are_added_up() -> None:
    choices = [
        generation(9, 0, 1, 2, 3, rounds=((4, 4), (0, 0))),
        generation(9, 0, 1, 2, 3, rounds=((2, 1), (4, 0))),
    ]
    found: dict[str, Any] = request_metrics(choices, 4)["speculative_decoding"]
    assert found == {
        "mean_acceptance_length": pytest.approx(1 + 5 / 3),
        "draft_acceptance_rate": pytest.approx(5 / 10),
        "acceptance_histogram": [1, 1, 0, 0, 1],
        "num_spec_steps": 3,
        "num_steps_without_draft": 1,
        "num_accepted_draft_tokens": 5,
        "num_draft_tokens": 10,
        "num_spec_tokens": 4,
    }


def test_nothing_was_proposed() -> None:
    found = speculation_metrics(acceptance((0, 0), (0, 0)), 0)
    assert (found["mean_acceptance_length"], found["draft_acceptance_rate"]) == (None, None)
    assert sum(found["acceptance_histogram"]) == found["num_spec_steps"] == 0
    assert found["num_steps_without_draft"] == 2


@pytest.mark.parametrize(
    "rounds", [((3, 0),), ((3, 3), (3, 1)), ((1, 1), (5, 2), (0, 0), (5, 5), (2, 0))]
)
def test_the_histogram_is_of_accepted_tokens(rounds: tuple[tuple[int, int], ...]) -> None:
    found = speculation_metrics(acceptance(*rounds), 5)
    accepted = [num_accepted for num_drafted, num_accepted in rounds if num_drafted]
    longest = max(num_drafted for num_drafted, _ in rounds)
    assert found["acceptance_histogram"] == [accepted.count(n) for n in range(longest + 1)]

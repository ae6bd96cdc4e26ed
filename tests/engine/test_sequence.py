"""Sampling parameters refuse impossible values; acceptance counts what was really proposed."""

from __future__ import annotations

import math
from typing import Any

import pytest

from outdraft.engine.sequence import SamplingParams, Sequence, Status
from outdraft.errors import OptionError


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": -0.1}, "temperature must be at least 0, got -0.1"),
        ({"temperature": math.nan}, "temperature must be at least 0, got nan"),
        ({"temperature": math.inf}, "temperature must be at least 0, got inf"),
        ({"top_k": -1}, "top_k must be at least 0, got -1"),
        ({"top_k": 2.5}, "top_k must be a whole number, got 2.5"),
        ({"top_p": 0.0}, "top_p must be greater than 0 and at most 1, got 0"),
        ({"top_p": 1.01}, "top_p must be greater than 0 and at most 1, got 1.01"),
        ({"min_p": 1.5}, "min_p must be at least 0 and at most 1, got 1.5"),
        ({"repetition_penalty": 0.0}, "repetition_penalty must be greater than 0, got 0"),
        ({"presence_penalty": 3}, "presence_penalty must be at least -2 and at most 2, got 3"),
        ({"frequency_penalty": -3}, "frequency_penalty must be at least -2 and at most 2, got -3"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, got 0"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens must be at least 0 and at most 8, got 9"),
        ({"seed": "7"}, "seed must be a whole number, got '7'"),
        ({"n": 0}, "n must be at least 1 and at most 64, got 0"),
        ({"logprobs": 21}, "logprobs must be at least 0 and at most 20, got 21"),
        ({"stop": ("a", "")}, "stop takes up to 16 strings that are not empty, got ['a', '']"),
        ({"stop": ("a",) * 17}, "stop takes up to 16 strings"),
        ({"logit_bias": {3: math.inf}}, "logit_bias of token 3 must be at least -1000"),
    ],
)
def test_refusals_are_one_line_with_the_value_seen(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        SamplingParams(**settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_stop_string_may_come_bare() -> None:
    assert SamplingParams(stop="END").stop == ("END",)  # type: ignore[arg-type]


def test_what_costs_nothing_is_known() -> None:
    assert not SamplingParams().has_penalties
    assert SamplingParams(repetition_penalty=1.1).has_penalties
    assert SamplingParams(presence_penalty=-0.5).has_penalties
    assert not SamplingParams(temperature=0, top_k=5, top_p=0.5, min_p=0.1).truncates
    for cut in ({"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.1}):
        assert SamplingParams(temperature=1, **cut).truncates  # type: ignore[arg-type]


def test_sequence_counts() -> None:
    sequence = Sequence(
        id=0,
        request_id="r",
        index=0,
        tokens=[1, 2, 3],
        num_prompt_tokens=3,
        params=SamplingParams(),
        seed=0,
        stop_ids=frozenset(),
    )
    assert (len(sequence), sequence.num_uncomputed, sequence.output) == (3, 3, [])
    sequence.tokens += [7, 8]
    sequence.num_computed = 4
    assert (sequence.num_uncomputed, sequence.num_output_tokens) == (1, 2)
    assert sequence.output == [7, 8]
    assert sequence.status is Status.WAITING
    assert not sequence.is_finished

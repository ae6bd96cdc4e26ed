from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.acceptance import Acceptance
from outdraft.loadgen.reported_acceptance import parse_acceptance
from outdraft.testing.fake_answers import vllm_acceptance

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


def test_vllm_and_our_own() -> None:
    found = {
        "acceptance_histogram": [3, 2, 1],
        "num_spec_steps": 6,
        "num_draft_tokens": 12,
        "num_accepted_draft_tokens": 4,
        "num_spec_tokens": 2,
    }
    counts = parse_acceptance({"metrics": {"speculative_decoding": found}})
    assert counts == Acceptance(6, 12, 4, accepted_per_position=[3, 1])
    detailed = {**found, "per_step_drafted": [2, 2, 2, 1, 1, 2], "per_step_accepted": [0] * 6}
    counts = parse_acceptance({"metrics": {"speculative_decoding": detailed}})
    assert counts is not None
    assert counts.drafted_per_position == [6, 4]


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=20))
def test_positions_out_of_the_histogram(rounds: list[tuple[int, int]]) -> None:
    played = tuple((drafted, min(drafted, accepted)) for drafted, accepted in rounds)
    true = Acceptance()
    for drafted, accepted in played:
        true.record(drafted, accepted)
    counts = parse_acceptance({"metrics": {"speculative_decoding": vllm_acceptance(true, 4)}})
    assert counts is not None
    assert counts.num_accepted_tokens == sum(counts.accepted_per_position)
    for place, number in enumerate(counts.accepted_per_position):
        assert number == sum(accepted > place for _, accepted in played)


def test_nothing_drafted_is_not_the_same_as_not_told() -> None:
    off = {"metrics": {"speculative_decoding": vllm_acceptance(Acceptance(), 0)}}
    assert parse_acceptance(off) == Acceptance(0, 0, 0)
    assert parse_acceptance({"metrics": {"queue_time_ms": 1.0}}) is None
    assert parse_acceptance({"metrics": None, "timings": {"predicted_n": 5}}) is None


def test_sglang() -> None:
    details: dict[str, Any] = {
        "spec_verify_ct": 3,
        "spec_num_correct_drafts": 4,
        "spec_num_proposed_drafts": 9,
        "spec_correct_drafts_histogram": [1, 0, 2],
    }
    expected = Acceptance(3, 9, 4, accepted_per_position=[2, 2])
    assert parse_acceptance({"sglext": {"spec_tokens_details": details}}) == expected
    assert parse_acceptance({"sglext": {"spec_tokens_details": [details]}}) == expected
    assert parse_acceptance({"meta_info": details}) == expected
    # The lengths it really drafted are better than those that were configured.
    real = parse_acceptance({"meta_info": {**details, "spec_cap_lens_histogram": [0, 1, 2]}})
    assert real == Acceptance(3, 5, 4, accepted_per_position=[2, 2], drafted_per_position=[3, 2])


def test_an_older_sglang_gives_a_length_and_no_rate() -> None:
    counts = parse_acceptance({"meta_info": {"spec_verify_ct": 4, "completion_tokens": 11}})
    assert counts is not None
    assert counts.num_accepted_tokens == 6  # 11 = the first + 4 rounds + 6
    assert (counts.rate, counts.length) == (None, 2.5)


def test_a_length_no_engine_has() -> None:
    found = {"num_spec_steps": 1, "per_step_drafted": [10**9]}
    assert parse_acceptance({"metrics": {"speculative_decoding": found}}) is None


def test_llamacpp_gives_a_rate_and_no_length() -> None:
    counts = parse_acceptance({"timings": {"predicted_n": 9, "draft_n": 8, "draft_n_accepted": 6}})
    assert counts is not None
    assert (counts.rate, counts.length) == (0.75, None)


@pytest.mark.parametrize("wrong", ["x", -1, 1.5, True, [1], {"a": 1}, float("inf")])
def test_numbers_that_are_none(wrong: Any) -> None:
    assert parse_acceptance({"timings": {"draft_n": wrong}}) is None
    assert (
        parse_acceptance({"meta_info": {"spec_verify_ct": 1, "spec_num_correct_drafts": wrong}})
        is None
    )


@settings(derandomize=True, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["metrics", "sglext", "meta_info", "timings"]),
        JSON
        | st.dictionaries(
            st.sampled_from(
                ["speculative_decoding", "spec_tokens_details", "spec_verify_ct", "draft_n"]
            ),
            JSON | st.dictionaries(st.just("acceptance_histogram"), JSON),
        ),
    )
)
def test_no_answer_makes_it_raise(payload: dict[str, Any]) -> None:
    parse_acceptance(payload)

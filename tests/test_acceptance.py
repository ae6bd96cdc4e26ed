"""Counts of acceptance: recorded, added up, and read as rates."""

from __future__ import annotations

import json
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from outdraft.acceptance import Acceptance


def test_acceptance_with_varying_k() -> None:
    acceptance = Acceptance()
    for drafted, accepted in ((2, 2), (4, 1), (0, 0), (1, 0)):
        acceptance.record(drafted, accepted)
    assert acceptance.num_drafts == 3
    assert acceptance.num_undrafted == 1
    assert acceptance.num_rounds == 4
    assert acceptance.drafted_per_position == [3, 2, 1, 1]
    assert acceptance.accepted_per_position == [2, 1, 0, 0]
    assert acceptance.rate == 3 / 7
    assert acceptance.length == 2.0  # (3 + 2 + 1) tokens in 3 rounds


def test_nothing_proposed_is_no_rate() -> None:
    acceptance = Acceptance()
    acceptance.record(0, 0)
    assert acceptance.rate is None
    assert acceptance.length is None


rounds = st.lists(
    st.integers(0, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), max_size=20
)


@given(rounds, rounds)
def test_adding_up_equals_recording_in_one(
    mine: list[tuple[int, int]], theirs: list[tuple[int, int]]
) -> None:
    parts = [Acceptance(), Acceptance()]
    whole = Acceptance()
    for part, recorded in zip(parts, (mine, theirs), strict=True):
        for drafted, accepted in recorded:
            part.record(drafted, accepted)
            whole.record(drafted, accepted)
    parts[0].add(parts[1])
    assert parts[0] == whole
    assert sum(whole.drafted_per_position) == whole.num_draft_tokens
    assert sum(whole.accepted_per_position) == whole.num_accepted_tokens


@given(st.lists(rounds, max_size=4))
def test_the_total_keeps_every_count(texts: list[list[tuple[int, int]]]) -> None:
    parts = []
    for recorded in texts:
        part = Acceptance()
        for drafted, accepted in recorded:
            part.record(drafted, accepted)
        parts.append(part)
    whole = Acceptance.total([*parts, None])
    assert whole.num_rounds == sum(map(len, texts))
    assert sum(whole.drafted_per_position) == whole.num_draft_tokens
    assert len(whole.rate_per_position) == len(whole.survival_per_position)
    for rate, survival in zip(whole.rate_per_position, whole.survival_per_position, strict=True):
        assert 0 <= survival <= rate <= 1


def test_positions_that_one_server_does_not_report_stay_unknown() -> None:
    """Otherwise the others' counts would stand for all, and rates would pass 1."""
    known = Acceptance(4, 8, 6, accepted_per_position=[4, 2], drafted_per_position=[4, 4])
    unknown = Acceptance(4, 8, 6, accepted_per_position=[4, 2])
    for parts in ([known, unknown], [unknown, known]):
        whole = Acceptance.total(parts)
        assert whole.drafted_per_position == []
        assert whole.rate_per_position == (1.0, 0.5)
    assert Acceptance.total([Acceptance(), known]).drafted_per_position == [4, 4]


def test_steps_of_texts() -> None:
    """2 texts of together 20 tokens, 6 of them accepted drafts: 12 steps after the prompts."""
    assert Acceptance(4, 8, 6).num_steps(20, 2) == 12


def test_how_often_there_was_a_draft() -> None:
    counts = Acceptance(num_drafts=6, num_draft_tokens=24, num_accepted_tokens=10)
    assert counts.share_drafted(42, 2) == 0.2  # of 30 steps
    assert counts.share_drafted(12, 2) is None, "fewer steps than drafts: others' are counted"
    assert Acceptance().share_drafted(42, 2) is None


def test_json_and_files_of_earlier_versions() -> None:
    counts = Acceptance(4, 8, 6, 1, [4, 2], [4, 4])
    assert Acceptance.from_json(json.loads(json.dumps(asdict(counts)))) == counts
    earlier = {"num_drafts": 4, "num_draft_tokens": 8, "num_accepted_tokens": 6,
               "accepted_per_position": [4, 2], "drafted_per_position": []}  # fmt: skip
    assert Acceptance.from_json(earlier) == Acceptance(4, 8, 6, accepted_per_position=[4, 2])

"""N-gram lookup: the contract, and which match wins."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outdraft.engine.proposers.ngram import NgramProposer
from outdraft.engine.proposers.proposer import DraftRequest, Proposer
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.testing.contracts import ProposerContract


class TestContract(ProposerContract):
    def make_proposer(self) -> Proposer:
        return NgramProposer(2, 4)


def sequence(tokens: list[int]) -> Sequence:
    return Sequence(0, "r", 0, list(tokens), 1, SamplingParams(), 0, frozenset())


def propose(tokens: list[int], k: int = 3, low: int = 2, high: int = 4) -> list[int]:
    [draft] = NgramProposer(low, high).propose([DraftRequest(sequence(tokens), k)])
    return draft.tokens


def test_the_longest_match_wins_over_a_later_one() -> None:
    assert propose([1, 2, 3, 50, 60, 2, 3, 70, 80, 1, 2, 3]) == [50, 60, 2]


def test_of_equal_matches_the_most_recent_wins() -> None:
    assert propose([2, 3, 50, 2, 3, 70, 2, 3]) == [70, 2, 3]


def test_limits_of_the_match_length() -> None:
    text = [1, 2, 3, 50, 2, 3, 60, 9, 3, 70, 5, 1, 2, 3]
    assert propose(text, high=2)[0] == 60  # three tokens back is not looked at
    assert propose(text, high=3)[0] == 50
    assert propose(text, low=1, high=1)[0] == 70
    assert propose([7, 3, 50, 9, 3], low=2) == []
    assert propose([7, 3, 50, 9, 3], low=1) == [50, 9, 3]


def test_a_match_that_overlaps_the_ending_is_read_on_in_circles() -> None:
    assert propose([5, 5, 5]) == [5, 5, 5]
    assert propose([5, 5], low=1) == [5, 5, 5]
    assert propose([5, 5]) == []
    assert propose([1, 2, 1, 2]) == [1, 2, 1]


def brute_force(tokens: list[int], k: int, low: int, high: int) -> list[int]:
    for size in range(high, low - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if size < len(tokens) and tokens[end - size : end] == tokens[-size:]:
                going_on = list(tokens)
                for at in range(end, end + k):
                    going_on.append(going_on[at])
                return going_on[len(tokens) :]
    return []


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=25),
    st.lists(st.integers(1, 5), max_size=6),
    st.integers(1, 3),
    st.integers(0, 3),
)
def test_equals_a_search_through_the_text(
    tokens: list[int], pauses: list[int], low: int, more: int
) -> None:
    """Also when the text is read bit by bit, a few tokens at a time."""
    proposer = NgramProposer(low, low + more)
    one = sequence(tokens[:1])
    for pause in [*pauses, len(tokens)]:
        one.tokens += tokens[len(one) : len(one) + pause]
        [draft] = proposer.propose([DraftRequest(one, 4)])
        assert draft.tokens == brute_force(one.tokens, 4, low, low + more)

"""Suffix matching: the contract, the automaton against brute force, what is learned and lost."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.engine.proposers.proposer import DraftRequest, Proposer
from outdraft.engine.proposers.suffix import SuffixAutomaton, SuffixProposer
from outdraft.engine.sequence import SamplingParams, Sequence
from outdraft.testing.contracts import ProposerContract

ROOT = (0, 0)
Text = list[int]
some_text = st.lists(st.integers(0, 2), min_size=1, max_size=16)


class TestContract(ProposerContract):
    def make_proposer(self) -> Proposer:
        return SuffixProposer()


class TestContractWhenForgetful(ProposerContract):
    def make_proposer(self) -> Proposer:
        return SuffixProposer(max_states=30)


def occurs(part: Text, text: Text) -> bool:
    return any(text[i : i + len(part)] == part for i in range(len(text) - len(part) + 1))


def longest_suffix(text: Text, known: list[Text]) -> Text:
    starts = range(len(text) + 1)
    return next(text[i:] for i in starts if any(occurs(text[i:], other) for other in known))


def followers(part: Text, texts: list[Text]) -> Counter[int]:
    size = len(part)
    return Counter(
        text[i + size]
        for text in texts
        for i in range(len(text) - size)
        if text[i : i + size] == part
    )


def fed(texts: list[Text]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for text in texts:
        automaton.feed(text)
    return automaton


@given(st.lists(st.integers(0, 2), max_size=40))
def test_the_ending_that_occurred_before(text: Text) -> None:
    automaton = SuffixAutomaton()
    for length in range(1, len(text) + 1):
        automaton.extend(text[length - 1])
        # Earlier, and it may overlap: anywhere in the text without its last token.
        expected = longest_suffix(text[:length], [text[: length - 1]])
        assert automaton.ending()[1] == len(expected)
        assert len(automaton) <= max(2, 2 * length)


@given(st.lists(some_text, max_size=5), some_text)
def test_the_longest_ending_known_from_other_texts(texts: list[Text], text: Text) -> None:
    automaton = fed(texts)
    place = ROOT
    for length, token in enumerate(text, 1):
        place = automaton.advance(*place, token)
        expected = longest_suffix(text[:length], [*texts, []])
        assert place[1] == len(expected)
        assert set(automaton.continuation(place[0], 1, 0.0)) <= set(followers(expected, texts))


@given(st.lists(st.tuples(st.lists(some_text, max_size=2), some_text), max_size=4))
def test_a_place_survives_texts_fed_later(parts: list[tuple[list[Text], Text]]) -> None:
    """States are split while somebody stands on them."""
    automaton = SuffixAutomaton()
    texts: list[Text] = [[]]
    place, matched = ROOT, []
    for new_texts, walk in parts:
        for text in new_texts:
            automaton.feed(text)
            texts.append(text)
        for token in walk:
            place = automaton.advance(*place, token)
            matched = longest_suffix([*matched, token], texts)
            assert place[1] == len(matched)
            best = followers(matched, texts).most_common(1)
            tokens = automaton.continuation(place[0], 1, 0.0)
            assert [followers(matched, texts)[token] for token in tokens] == [n for _, n in best]


@given(st.lists(some_text, min_size=1, max_size=4), st.sampled_from([0.0, 0.3, 0.6, 1.0]))
def test_the_most_frequent_continuation(texts: list[Text], min_probability: float) -> None:
    automaton = fed(texts)
    for start in range(3):
        place = automaton.advance(*ROOT, start)
        if place == ROOT:
            continue
        tokens = automaton.continuation(place[0], 5, min_probability)
        part, probability = [start], 1.0
        for token in tokens:
            counts = followers(part, texts)
            assert counts[token] == max(counts.values())
            probability *= counts[token] / counts.total()
            part.append(token)
        assert probability >= min_probability - 1e-9
        counts = followers(part, texts)
        if len(tokens) < 5 and counts:  # it stopped because going on was too unsure
            assert probability * max(counts.values()) / counts.total() < min_probability + 1e-9


@settings(max_examples=20)
@given(st.integers(1, 300))
def test_one_repeated_token_stays_cheap(length: int) -> None:
    automaton = fed([[7] * length])
    assert len(automaton) == length + 1
    assert automaton.advance(*ROOT, 7)[1] == 1


# ---------------------------------------------------------------- the proposer


def sequence(number: int, tokens: Text, num_prompt: int = 1) -> Sequence:
    return Sequence(number, "r", 0, list(tokens), num_prompt, SamplingParams(), 0, frozenset())


def drafted(proposer: SuffixProposer, one: Sequence, k: int = 8) -> Text:
    [draft] = proposer.propose([DraftRequest(one, k)])
    return draft.tokens


EARLIER = list(range(100, 120))


def test_learns_what_earlier_requests_wrote() -> None:
    proposer = SuffixProposer()
    new = sequence(1, [5, 6, 103, 104])
    assert drafted(proposer, new) == []
    proposer.release(sequence(0, [1, *EARLIER]))
    new.tokens += [105, 106]
    assert drafted(proposer, new) == EARLIER[7:11]  # two new tokens matched, twice as many drafted
    new.tokens += [107, 108]
    assert drafted(proposer, new) == EARLIER[9:17]


def test_draft_lengths_of_their_own_remember_apart() -> None:
    proposer = SuffixProposer(max_states=400)

    def asking(number: int, k: int | None, tokens: Text) -> Sequence:
        one = sequence(number, tokens)
        one.max_draft_tokens = k
        return one

    proposer.release(asking(0, 4, [1, *EARLIER]))
    assert drafted(proposer, asking(1, 4, [5, 103, 104]), 2) == [105, 106]
    assert drafted(proposer, asking(2, 6, [5, 103, 104]), 2) == []
    assert drafted(proposer, asking(3, None, [5, 103, 104]), 2) == []
    for number in range(10, 40):  # they share one room: the fullest is halved
        proposer.release(asking(number, 6, [1, *range(30 * number, 30 * number + 30)]))
    assert drafted(proposer, asking(4, 4, [5, 103, 104]), 2) == [105, 106]


def test_prompts_are_not_learned() -> None:
    proposer = SuffixProposer()
    proposer.release(sequence(0, [*EARLIER, 1], num_prompt=len(EARLIER)))
    assert drafted(proposer, sequence(1, EARLIER[:6])) == []


def test_its_own_text_wins_when_it_matches_as_well() -> None:
    proposer = SuffixProposer()
    proposer.release(sequence(0, [0, 1, 2, 3, 50]))
    assert drafted(proposer, sequence(1, [2, 3, 60, 61, 2, 3]))[:1] == [60]
    assert drafted(proposer, sequence(2, [2, 3, 60, 61, 1, 2, 3]))[:1] == [50]


@pytest.mark.parametrize(("matched", "length"), [(1, 0), (2, 4), (3, 6), (4, 8), (6, 8)])
def test_the_longer_the_match_the_longer_the_draft(matched: int, length: int) -> None:
    text = list(range(30))
    one = sequence(0, [*text, 99, *text[10 - matched : 10]])
    assert drafted(SuffixProposer(), one) == text[10 : 10 + length]


def test_an_unsure_continuation_ends_the_draft() -> None:
    # After 1 2 comes 3 always, then 4 or 5 or 6 or 7: a quarter each is too little.
    text = [t for last in (4, 5, 6, 7) for t in (1, 2, 3, last)] + [1, 2]
    assert drafted(SuffixProposer(), sequence(0, text)) == [3]


def test_forgets_the_older_half_when_full() -> None:
    proposer = SuffixProposer(max_states=100)
    texts = [[1000 * n + i for i in range(30)] for n in range(4)]
    running = sequence(9, [3, *texts[1][:4]])
    for number, text in enumerate(texts):
        proposer.release(sequence(number, [0, *text]))
        drafted(proposer, running)  # its place must survive the change of automaton
    assert drafted(proposer, sequence(10, texts[0][:5])) == []
    assert drafted(proposer, sequence(11, texts[3][:5])) == texts[3][5:13]
    assert drafted(proposer, sequence(12, texts[2][:5])) == texts[2][5:13]
    running.tokens += texts[3][:5]
    assert drafted(proposer, running) == texts[3][5:13]


def test_a_text_too_long_to_keep_is_not_kept() -> None:
    proposer = SuffixProposer(max_states=50)
    for number, text in enumerate((range(20, 40), range(100, 300))):
        proposer.release(sequence(number, [0, *text]))
    assert drafted(proposer, sequence(2, [100, 101, 102])) == []


def test_forget_drops_earlier_texts_and_keeps_running_ones() -> None:
    proposer = SuffixProposer()
    proposer.release(sequence(0, [1, *EARLIER]))
    running = sequence(1, [8, 9, 10, 11, *EARLIER[:4]])
    assert drafted(proposer, running) == EARLIER[4:12]
    proposer.forget()
    assert drafted(proposer, running) == []
    running.tokens += [8, 9]
    assert drafted(proposer, running)[:2] == [10, 11]
    proposer.release(sequence(2, [1, *EARLIER]))
    running.tokens += EARLIER[10:14]
    assert drafted(proposer, running, 2) == EARLIER[14:16]

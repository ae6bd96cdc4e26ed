"""Prompts of a given length, counted by tokenizers of our own."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest

from outdraft.errors import OptionError
from outdraft.workload.lengths import (
    Lengths,
    cut_text,
    fit_prompt,
    parse_lengths,
    with_answers_of,
    with_prompts_of,
)
from outdraft.workload.plan import plan_requests, salted
from outdraft.workload.sets import built_in

PROMPTS = built_in()
BY_CATEGORY = {
    name: [each for each in PROMPTS if each.category == name]
    for name in {each.category for each in PROMPTS}
}


def words(text: str) -> int:
    return len(text.split())


def pieces_of_four(text: str) -> int:
    """As a tokenizer does: words in pieces of up to four letters, signs by themselves; and a
    template of eleven tokens."""
    return 11 + sum(-(-len(each) // 4) for each in re.findall(r"\w+|[^\w\s]", text))


class Asked:
    """How often a server is asked."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self.count, self.num = count, 0

    def __call__(self, text: str) -> int:
        self.num += 1
        return self.count(text)


@pytest.mark.parametrize("length", [16, 64, 100, 512, 4096])
@pytest.mark.parametrize("count", [words, pieces_of_four])
def test_every_prompt_has_that_length(length: int, count: Callable[[str], int]) -> None:
    asked, found = Asked(count), []
    for prompt in PROMPTS[::12]:
        fitted = fit_prompt(prompt, length, BY_CATEGORY, asked)
        assert (fitted.id, fitted.category) == (prompt.id, prompt.category)
        [message] = fitted.messages
        assert message.role == "user"
        assert message.content[:6] == prompt.text[:6]
        found.append(count(message.content))
    assert set(found) == {length}
    assert asked.num / len(found) < 16, "few questions for each"


def test_it_is_made_of_prompts_of_its_category() -> None:
    prompt = BY_CATEGORY["code"][0]
    text = fit_prompt(prompt, 900, BY_CATEGORY, words).text
    known = " ".join(each.text for each in BY_CATEGORY["code"]).split()
    assert set(text.split()[:-8]) <= set(known)
    assert len({each.id for each in BY_CATEGORY["code"] if each.text in text}) > 5


def test_prompts_are_continued_in_different_ways() -> None:
    texts = {fit_prompt(each, 400, BY_CATEGORY, words).text for each in PROMPTS}
    assert len(texts) == len(PROMPTS)
    ends = {text[-100:] for text in texts}
    assert len(ends) > 0.9 * len(texts)


def test_a_text_keeps_its_lines() -> None:
    code = "def f(x):\n    return x + 1\n\nprint(f(2))"
    assert cut_text(code, 5, words) == "def f(x):\n    return x +"
    assert cut_text(code, 99, words) == code


def test_a_length_for_each() -> None:
    plan = plan_requests(PROMPTS[:40], mix=((0.0, 1.0),), seed=0)
    lengths = Lengths(50, 300)
    fitted = with_prompts_of(plan, lengths, 0, source=PROMPTS, count=words, at_most=30)
    found = [words(each.prompt.text) for each in fitted]
    assert found[:30] == lengths.draw(40, 0)[:30]
    assert [each.prompt for each in fitted[30:]] == [each.prompt for each in fitted[:10]]
    assert min(found) >= 50
    assert max(found) <= 300
    assert len(set(found)) > 20
    assert [each.seed for each in fitted] == [each.seed for each in plan]
    answers = with_answers_of(plan, Lengths(7, 7), 0)
    assert {each.max_tokens for each in answers} == {7}


def test_a_mark_before_the_text_counts() -> None:
    planned = salted(plan_requests(PROMPTS[:1], mix=((0.0, 1.0),), seed=0)[0], "8/3")
    [fitted] = with_prompts_of(
        [planned], Lengths(64, 64), 0, source=PROMPTS, count=pieces_of_four, at_most=9
    )
    assert fitted.prompt.text.startswith("[8/3] ")
    assert pieces_of_four(fitted.prompt.text) == 64


def test_nothing_to_make() -> None:
    assert with_prompts_of([], Lengths(1, 9), 0, source=PROMPTS, count=words, at_most=9) == []


@pytest.mark.parametrize(
    ("text", "lengths"),
    [("512", Lengths(512, 512)), (" 1-9 ", Lengths(1, 9)), ("5-5", Lengths(5, 5))],
)
def test_what_is_a_length(text: str, lengths: Lengths) -> None:
    assert parse_lengths(text) == lengths
    assert parse_lengths(str(lengths)) == lengths


@pytest.mark.parametrize("text", ["", "0", "9-1", "-5", "5-", "1.5", "many", "1e3", "99999999"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(OptionError, match=r"is no length in tokens; write e\.g\. 512, or 100-500"):
        parse_lengths(text)


def test_all_lengths_are_drawn() -> None:
    drawn = Lengths(3, 6).draw(400, random.Random(1).randrange(99))
    assert {drawn.count(each) > 60 for each in range(3, 7)} == {True}

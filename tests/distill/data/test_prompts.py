from __future__ import annotations

import random
from collections import Counter

import pytest

from outdraft.distill.data.prompts import (
    TEMPLATES,
    ChatFormat,
    Documents,
    PromptMaker,
    first_of_each,
    held_out,
    split_prompts,
)
from outdraft.distill.target import Target
from outdraft.workload.prompt import Message, Prompt
from outdraft.workload.sets import built_in

CODE = "```python\ndef f(x):\n    return {'a': x}  # " + "x" * 200 + "\n```"
SAME = ["log-2", "log-4", "log-6", "mail-1", "mail-5", "mail-8"]
STORY = "Once there was a draft that guessed. " * 8


@pytest.fixture(scope="module")
def chat(target: Target) -> ChatFormat:
    return ChatFormat(target.tokenizer)


def made(chat: ChatFormat, target: Target, documents: Documents) -> list[tuple[str, str, bool]]:
    maker = PromptMaker(split_prompts([])[0], chat)
    return [
        (target.tokenizer.decode(one.tokens, skip_special=False), one.category, one.is_begun)
        for one in maker.make(600, documents, random.Random(1))
    ]


def test_a_begun_turn_with_its_rest_is_a_whole_one(chat: ChatFormat, target: Target) -> None:
    rest = target.tokenizer.encode(" is it?", add_special=False)
    text = target.tokenizer.decode(
        chat.complete_turn(chat.encode_start("What"), rest), skip_special=False
    )
    assert text == target.tokenizer.render_chat([{"role": "user", "content": "What is it?"}])


def test_nothing_held_out_is_in_any_made_prompt(chat: ChatFormat, target: Target) -> None:
    texts = [text for text, _, _ in made(chat, target, Documents())]
    for prompt in split_prompts([])[1]:
        for part in prompt.messages[-1].content.split("\n\n"):
            assert not any(part in text for text in texts if len(part) > 60), prompt.id


def test_prompts_come_of_every_kind(chat: ChatFormat, target: Target) -> None:
    documents = Documents()
    documents.add(STORY)
    documents.add(f"Here it is:\n{CODE}\nThat was it.")
    assert (documents.texts, documents.codes) == ([STORY.strip()], [CODE])
    prompts = made(chat, target, documents)
    assert sum(CODE in text for text, _, _ in prompts) > 10
    assert sum(STORY.strip() in text for text, _, _ in prompts) > 50
    assert 150 < sum(is_begun for _, _, is_begun in prompts) < 300
    assert {"chat", "code", "code_edit", "summarization", "translation", "qa", "extraction",
            "creative"} <= {category for _, category, _ in prompts}  # fmt: skip


def test_every_template_takes_its_part() -> None:
    for around in (TEMPLATES["about_text"], TEMPLATES["about_code"]):
        assert all("{text}" in one for forms in around.values() for one in forms)
    assert all("{topic}" in one for forms in TEMPLATES["questions"].values() for one in forms)


def test_short_and_endless_texts_are_no_documents() -> None:
    documents = Documents()
    documents.add("too short")
    documents.add("x" * 5000)
    assert not documents.texts
    assert not documents.codes


def own_prompts(count: int) -> list[Prompt]:
    return [
        Prompt(f"{category}-{number}", category, (Message("user", f"{category} {number}"),), 64)
        for category in ("log", "mail")
        for number in range(count)
    ]


def test_a_third_of_a_users_own_prompts_is_held_out() -> None:
    own = own_prompts(12)
    training, unseen = split_prompts(own)
    assert Counter(p.category for p in unseen if p in own) == {"log": 4, "mail": 4}
    assert Counter(p.category for p in training if p in own) == {"log": 8, "mail": 8}
    assert [p for p in unseen if p in own] == held_out(own)
    assert set(held_out(own[::-1])) == set(held_out(own)), "the order does not matter"


def test_the_split_is_the_same_for_ever() -> None:
    assert [p.id for p in held_out(own_prompts(9))] == SAME


def test_no_prompt_is_on_both_sides() -> None:
    training, unseen = split_prompts(own_prompts(12))
    assert {p.digest for p in training}.isdisjoint(p.digest for p in unseen)
    assert {p.id for p in training}.isdisjoint(p.id for p in unseen)


def test_what_is_measured_on_is_held_out() -> None:
    training, unseen = split_prompts([])
    assert unseen == built_in()
    assert {p.category for p in training} == {p.category for p in unseen}
    assert len(training) == 184


def test_some_of_each() -> None:
    some = first_of_each(built_in(), 2)
    assert set(Counter(prompt.category for prompt in some).values()) == {2}
    assert first_of_each(some, None) == some

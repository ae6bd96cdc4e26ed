from __future__ import annotations

import random

import pytest

from outdraft.distill.prompts import Documents, PromptMaker, Turns
from outdraft.distill.split import for_training, held_out
from outdraft.distill.target import Target
from outdraft.distill.templates import AROUND_CODE, AROUND_TEXT, FORMS
from outdraft.workload.sets import built_in

CODE = "```python\ndef f(x):\n    return {'a': x}  # " + "x" * 200 + "\n```"
STORY = "Once there was a draft that guessed. " * 8


@pytest.fixture(scope="module")
def turns(target: Target) -> Turns:
    return Turns(target.tokenizer)


def made(turns: Turns, target: Target, documents: Documents) -> list[tuple[str, str, bool]]:
    maker = PromptMaker(for_training(built_in()), turns)
    return [
        (target.tokenizer.decode(one.tokens, skip_special=False), one.category, one.is_begun)
        for one in maker.make(600, documents, random.Random(1))
    ]


def test_a_begun_turn_with_its_rest_is_a_whole_one(turns: Turns, target: Target) -> None:
    rest = target.tokenizer.encode(" is it?", add_special=False)
    text = target.tokenizer.decode(turns.finished(turns.begun("What"), rest), skip_special=False)
    assert text == target.tokenizer.render_chat([{"role": "user", "content": "What is it?"}])


def test_nothing_held_out_is_in_any_made_prompt(turns: Turns, target: Target) -> None:
    texts = [text for text, _, _ in made(turns, target, Documents())]
    for prompt in held_out(built_in()):
        for part in prompt.messages[-1].content.split("\n\n"):
            assert not any(part in text for text in texts if len(part) > 60), prompt.id


def test_prompts_come_of_every_kind(turns: Turns, target: Target) -> None:
    documents = Documents()
    documents.add(STORY)
    documents.add(f"Here it is:\n{CODE}\nThat was it.")
    assert (documents.texts, documents.codes) == ([STORY.strip()], [CODE])
    prompts = made(turns, target, documents)
    assert sum(CODE in text for text, _, _ in prompts) > 10
    assert sum(STORY.strip() in text for text, _, _ in prompts) > 50
    assert 150 < sum(is_begun for _, _, is_begun in prompts) < 300
    assert {"chat", "code", "code_edit", "summarization", "translation", "qa", "extraction",
            "creative"} <= {category for _, category, _ in prompts}  # fmt: skip


def test_every_template_takes_its_part() -> None:
    for around in (AROUND_TEXT, AROUND_CODE):
        assert all("{text}" in one for forms in around.values() for one in forms)
    assert all("{topic}" in one for forms in FORMS.values() for one in forms)


def test_short_and_endless_texts_are_no_documents() -> None:
    documents = Documents()
    documents.add("too short")
    documents.add("x" * 5000)
    assert not documents.texts
    assert not documents.codes

from __future__ import annotations

from collections import Counter

from outdraft.distill.split import first_of_each, for_training, held_out
from outdraft.workload.sets import built_in

EXPECTED_CHAT = [
    f"chat-{number}"
    for number in ["002", "009", "010", "011", "021", "023", "024", "028", "029", "032", "034"]
]


def test_a_third_of_every_category_is_held_out() -> None:
    everything = Counter(prompt.category for prompt in built_in())
    out = Counter(prompt.category for prompt in held_out(built_in()))
    assert out == {category: count // 3 for category, count in everything.items()}


def test_no_prompt_is_on_both_sides() -> None:
    trained, out = for_training(built_in()), held_out(built_in())
    assert {p.id for p in trained}.isdisjoint(p.id for p in out)
    assert len(trained) + len(out) == len(built_in())


def test_the_split_is_the_same_for_ever() -> None:
    out = [prompt.id for prompt in held_out(built_in()) if prompt.category == "chat"]
    assert out == EXPECTED_CHAT
    shuffled = held_out(list(reversed(built_in())))
    assert {prompt.id for prompt in shuffled} == {prompt.id for prompt in held_out(built_in())}


def test_some_of_each() -> None:
    some = first_of_each(held_out(built_in()), 2)
    assert set(Counter(prompt.category for prompt in some).values()) == {2}
    assert first_of_each(some, None) == some

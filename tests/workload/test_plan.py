from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outdraft.workload.plan import choose_balanced, plan_requests
from outdraft.workload.prompt import Message, Prompt

PROMPTS = [
    Prompt(f"{category}-{number}", category, (Message("user", "x"),), 10 * (number + 1))
    for category, count in (("a", 7), ("b", 3), ("c", 5))
    for number in range(count)
]


@given(count=st.integers(0, 60), seed=st.integers(0, 5))
def test_every_category_has_its_share_throughout(count: int, seed: int) -> None:
    """A file with 7, 3 and 5 prompts stands for such traffic."""
    chosen = choose_balanced(PROMPTS, count, seed)
    assert len(chosen) == count
    for length in range(count + 1):
        counts = Counter(prompt.category for prompt in chosen[:length])
        for category, share in (("a", 7 / 15), ("b", 3 / 15), ("c", 5 / 15)):
            assert abs(counts[category] - share * length) < 1.01
    assert chosen == choose_balanced(PROMPTS, count, seed)


@given(seed=st.integers(0, 5))
def test_equal_categories_come_once_in_each_turn_in_any_order(seed: int) -> None:
    prompts = [Prompt(f"{c}{n}", c, (Message("user", "x"),), 9) for c in "abcd" for n in range(6)]
    chosen = choose_balanced(prompts, 24, seed)
    turns = ["".join(each.category for each in chosen[at : at + 4]) for at in range(0, 24, 4)]
    assert all(sorted(turn) == list("abcd") for turn in turns)
    assert len(set(turns)) > 1
    assert len({each.id for each in chosen}) == 24, "nothing repeats before it must"


def test_nothing_repeats_before_it_must() -> None:
    chosen = choose_balanced(PROMPTS, 15, 0)
    assert len({prompt.id for prompt in chosen}) == 15


def test_a_plan_is_the_same_for_every_arm_and_hot_in_every_category() -> None:
    chosen = choose_balanced(PROMPTS, 60, 0)
    mix = ((0.0, 0.5), (0.8, 0.5))
    plan = plan_requests(chosen, mix=mix, seed=3)
    assert plan == plan_requests(chosen, mix=mix, seed=3)
    assert plan != plan_requests(chosen, mix=mix, seed=4)
    hot = Counter(each.prompt.category for each in plan if each.temperature)
    assert hot == {"a": 14, "b": 6, "c": 10}
    assert all(each.max_tokens == each.prompt.expected_tokens for each in plan)
    assert all(each.offset_ns is None for each in plan)


def test_lengths_are_spread_around_what_is_given() -> None:
    plan = plan_requests(PROMPTS * 10, mix=((0.0, 1.0),), seed=0, max_tokens=64, spread=0.5)
    lengths = [each.max_tokens for each in plan]
    assert 32 <= min(lengths) < 40
    assert 88 < max(lengths) <= 96
    assert abs(sum(lengths) / len(lengths) - 64) < 5


def test_offsets_and_length_are_as_given() -> None:
    plan = plan_requests(PROMPTS[:2], mix=((0.0, 1.0),), seed=0, max_tokens=5, offsets_ns=[0, 9])
    assert [(each.max_tokens, each.offset_ns) for each in plan] == [(5, 0), (5, 9)]


@given(count=st.integers(1, 90), share=st.integers(1, 99), seed=st.integers(0, 5))
def test_a_mix_has_its_shares_however_few_a_category_has(count: int, share: int, seed: int) -> None:
    """Rounded within each category, three of ten prompts would never be hot at 10 %."""
    mix = ((0.0, 1 - share / 100), (0.8, share / 100))
    plan = plan_requests(choose_balanced(PROMPTS, count, seed), mix=mix, seed=seed)
    hot = Counter(each.prompt.category for each in plan if each.temperature)
    assert abs(sum(hot.values()) - count * share / 100) < 1
    for category in "abc":
        members = sum(each.prompt.category == category for each in plan)
        assert abs(hot[category] - members * share / 100) < 3

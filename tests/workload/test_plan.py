from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from outdraft.workload.plan import make_plan, spread
from outdraft.workload.prompt import Message, Prompt

PROMPTS = [
    Prompt(f"{category}-{number}", category, (Message("user", "x"),), 10 * (number + 1))
    for category, count in (("a", 7), ("b", 3), ("c", 5))
    for number in range(count)
]


@given(count=st.integers(0, 60), seed=st.integers(0, 5))
def test_categories_are_spread_evenly(count: int, seed: int) -> None:
    chosen = spread(PROMPTS, count, seed)
    counts = Counter(prompt.category for prompt in chosen)
    assert len(chosen) == count
    assert max(counts.values(), default=0) - min((counts[c] for c in "abc"), default=0) <= 1
    assert chosen == spread(PROMPTS, count, seed)


def test_nothing_repeats_before_it_must() -> None:
    chosen = spread(PROMPTS, 9, 0)
    assert len({prompt.id for prompt in chosen}) == 9


def test_a_plan_is_the_same_for_every_arm_and_hot_in_every_category() -> None:
    chosen = spread(PROMPTS, 60, 0)
    mix = ((0.0, 0.5), (0.8, 0.5))
    plan = make_plan(chosen, mix=mix, seed=3)
    assert plan == make_plan(chosen, mix=mix, seed=3)
    assert plan != make_plan(chosen, mix=mix, seed=4)
    hot = Counter(each.prompt.category for each in plan if each.temperature)
    assert hot == {"a": 10, "b": 10, "c": 10}
    assert all(each.max_tokens == each.prompt.expected_tokens for each in plan)
    assert all(each.offset_ns is None for each in plan)


def test_offsets_and_length_are_as_given() -> None:
    plan = make_plan(PROMPTS[:2], mix=((0.0, 1.0),), seed=0, max_tokens=5, offsets_ns=[0, 9])
    assert [(each.max_tokens, each.offset_ns) for each in plan] == [(5, 0), (5, 9)]


@given(count=st.integers(1, 90), share=st.integers(1, 99), seed=st.integers(0, 5))
def test_a_mix_has_its_shares_however_few_a_category_has(count: int, share: int, seed: int) -> None:
    """Rounded within each category, three of ten prompts would never be hot at 10 %."""
    mix = ((0.0, 1 - share / 100), (0.8, share / 100))
    plan = make_plan(spread(PROMPTS, count, seed), mix=mix, seed=seed)
    hot = Counter(each.prompt.category for each in plan if each.temperature)
    assert abs(sum(hot.values()) - count * share / 100) < 1
    for category in "abc":
        members = sum(each.prompt.category == category for each in plan)
        assert abs(hot[category] - members * share / 100) < 3

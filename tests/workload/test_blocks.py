from __future__ import annotations

from dataclasses import replace

from outdraft.workload.plan import make_blocks, plan_requests, salted
from outdraft.workload.prompt import Prompt
from outdraft.workload.sets import built_in

PROMPTS = built_in()
PLAN = plan_requests(PROMPTS[:12], mix=((0.0, 1.0),), seed=0, max_tokens=9)


def test_a_mark_is_before_the_text_and_changes_nothing_else() -> None:
    marked = salted(PLAN[0], "abc-1")
    before, after = PLAN[0].prompt.messages, marked.prompt.messages
    assert after[0].content == f"[abc-1] {before[0].content}"
    assert after[1:] == before[1:]
    assert (marked.seed, marked.prompt.id) == (PLAN[0].seed, PLAN[0].prompt.id)


def test_another_run_has_other_requests() -> None:
    def texts(salt: str) -> set[str]:
        blocks = make_blocks(PROMPTS, size=4, count=2, mix=((0.0, 1.0),), seed=0, salt=salt)
        return {each.prompt.messages[0].content for n in range(2) for each in blocks.requests(n)}

    assert texts("a") == texts("a")
    assert texts("a").isdisjoint(texts("b"))


def test_every_block_is_the_same_for_all_arms_and_marked_anew() -> None:
    blocks = make_blocks(
        PROMPTS, size=5, count=4, mix=((0.0, 0.5), (0.8, 0.5)), seed=3, max_tokens=7
    )
    assert blocks.count == 4
    assert blocks.requests(2) == blocks.requests(2)
    texts = [
        each.prompt.messages[0].content
        for block in (-1, 0, 1, 2, 3, 4)
        for arm in ("", "a")
        for each in blocks.requests(block, arm)
    ]
    assert len(texts) == 60 == len(set(texts))
    temperatures = [each.temperature for block in range(4) for each in blocks.requests(block)]
    assert sorted(temperatures) == [0.0] * 10 + [0.8] * 10
    assert {each.max_tokens for each in blocks.requests(0)} == {7}
    ids = [each.prompt.id for each in blocks.requests(0)]
    assert ids == [each.prompt.id for each in blocks.requests(4)], "a plan that ends begins again"


def test_a_part_of_a_block_is_the_same_requests() -> None:
    blocks = make_blocks(PROMPTS, size=5, count=4, mix=((0.0, 1.0),), seed=3)
    assert replace(blocks, limit=3).requests(2) == blocks.requests(2)[:3]
    assert replace(blocks, limit=9).requests(2) == blocks.requests(2)


def test_no_prompt_comes_twice_in_a_block() -> None:
    by_category: dict[str, list[Prompt]] = {}
    for each in PROMPTS:
        by_category.setdefault(each.category, []).append(each)
    few = [each for members in list(by_category.values())[:3] for each in members[:2]]
    for first in (0, 3):
        made = make_blocks(few, size=6, count=12, mix=((0.0, 1.0),), seed=1, first=first)
        assert made.num_repeats == 0


def test_where_prompts_are_too_few_repeats_are_counted() -> None:
    blocks = make_blocks(PROMPTS[:3], size=5, count=4, mix=((0.0, 1.0),), seed=0)
    assert blocks.num_repeats == 4 * 2


def test_a_warm_up_has_prompts_of_its_own_if_there_are_any() -> None:
    blocks = make_blocks(PROMPTS[:20], size=4, count=4, mix=((0.0, 1.0),), seed=0)
    used = {each.prompt.id for each in blocks.plan}
    assert len(blocks.requests(-1)) == 4
    assert used.isdisjoint(each.prompt.id for each in blocks.requests(-1))
    assert len(make_blocks(PROMPTS[:8], size=4, count=4, mix=((0.0, 1.0),), seed=0).warmup) == 4


def test_what_is_sent_along_with_a_block_has_none_of_its_prompts() -> None:
    """Also where the plan takes every prompt there is; and the next block gets others."""
    for num in (24, 400):
        blocks = make_blocks(PROMPTS[:num], size=8, count=3, mix=((0.0, 1.0),), seed=0)
        assert blocks.spare(1, 5) == blocks.spare(1, 5)
        for block in range(3):
            own = blocks.requests(block)
            along = blocks.spare(block, 16)
            assert {each.prompt.id for each in own}.isdisjoint(each.prompt.id for each in along)
            texts = [each.prompt.messages[0].content for each in (*own, *along)]
            assert len(set(texts)) == len(texts) == 24
        one, other = ({each.prompt.id for each in blocks.spare(n, 5)} for n in range(2))
        assert one.isdisjoint(other)
    counted = {each.prompt.id for each in blocks.plan}
    assert counted.isdisjoint(each.prompt.id for each in blocks.pool)


def test_where_there_is_no_other_prompt_it_is_sent_along() -> None:
    blocks = make_blocks(PROMPTS[:3], size=3, count=1, mix=((0.0, 1.0),), seed=0)
    assert len(blocks.spare(0, 7)) == 7

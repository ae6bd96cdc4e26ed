from __future__ import annotations

from outdraft.measure.blocks import make_blocks, salted
from outdraft.workload.plan import make_plan
from outdraft.workload.sets import built_in

PROMPTS = built_in()
PLAN = make_plan(PROMPTS[:12], mix=((0.0, 1.0),), seed=0, max_tokens=9)


def test_a_mark_is_before_the_text_and_changes_nothing_else() -> None:
    marked = salted(PLAN[0], "abc-1")
    before, after = PLAN[0].prompt.messages, marked.prompt.messages
    assert after[0].content == f"[abc-1] {before[0].content}"
    assert after[1:] == before[1:]
    assert (marked.seed, marked.prompt.id) == (PLAN[0].seed, PLAN[0].prompt.id)


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

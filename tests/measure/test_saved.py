from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.errors import OptionError
from outdraft.measure.saved import in_blocks

from .made import done


def test_the_same_requests_side_by_side_in_blocks() -> None:
    one = [done(index) for index in range(7)]
    other = [replace(each, arm="b", index=90 + each.index) for each in one[::-1]]
    first, second = in_blocks(one, other, 3)
    assert [each.prompt_id for each in first] == [each.prompt_id for each in second]
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert [(each.block, each.index) for each in first] == places
    assert [(each.block, each.index) for each in second] == places
    assert [each.arm for each in second] == ["b"] * 7


def test_only_what_both_have() -> None:
    one = [done(index) for index in range(4)]
    hot = replace(one[3], temperature=0.8)
    warm = replace(one[2], is_warmup=True)
    first, second = in_blocks(one, [*one[:2], warm, hot], 12)
    assert [each.prompt_id for each in first] == ["p0", "p1"]
    assert len(second) == 2


def test_a_prompt_that_comes_twice_meets_its_own_turn() -> None:
    one = [done(0, e2e=10), done(0, e2e=20), done(1, e2e=30)]
    other = [done(0, e2e=11), done(1, e2e=33), done(0, e2e=22)]
    first, second = in_blocks(one, other, 12)
    assert [(a.e2e_ns or 0) / 1e6 for a in first] == [10, 20, 30]
    assert [(b.e2e_ns or 0) / 1e6 for b in second] == [11, 22, 33]


def test_nothing_in_common() -> None:
    with pytest.raises(OptionError, match="no request in common; use the same prompts and seed"):
        in_blocks([done(0)], [done(1)], 12)

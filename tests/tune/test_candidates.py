from __future__ import annotations

import pytest

from outdraft.tune.arm import name_of
from outdraft.tune.candidates import (
    Can,
    Space,
    draft_devices,
    enumerate_arms,
    spread_ks,
    thinned,
)


def test_draft_lengths_that_are_not_tried_are_told() -> None:
    ks = tuple(range(2, 9))
    tried = spread_ks(ks, 4)
    assert tried == (2, 4, 6, 8)
    (left,) = thinned(ks, tried)
    assert left.name == "k=3, 5, 7"
    assert "only 2, 4, 6, 8 are tried" in left.reason
    assert thinned(tried, spread_ks(tried, 4)) == []


def test_a_head_is_tried_on_one_device_and_on_all() -> None:
    drafts = {"eagle": ("head",), "draft_model": ("small",)}
    devices = draft_devices(is_able=True, target_devices=4)
    space = Space(("ngram", "eagle", "draft_model"), (3, 5), drafts, draft_devices=devices)
    can = Can(frozenset(space.methods), frozenset({"coupled"}), frozenset({"none"}))
    arms, pruned = enumerate_arms(space, can, lambda proposer: None)
    assert [name_of(arm) for arm in arms] == [
        "ngram k=3", "ngram k=5",
        "eagle head k=3 tp=1", "eagle head k=5 tp=1", "eagle head k=3 tp=4", "eagle head k=5 tp=4",
        "draft_model small k=3", "draft_model small k=5",
    ]  # fmt: skip
    assert pruned == []


@pytest.mark.parametrize(("is_able", "count"), [(False, 4), (True, 1)])
def test_no_choice_of_devices(is_able: bool, count: int) -> None:
    assert draft_devices(is_able=is_able, target_devices=count) == {}


def test_what_the_engine_cannot_do_is_pruned_with_the_reason() -> None:
    space = Space(("ngram", "eagle"), (3,), {}, rules=("coupled", "typical"))
    can = Can(frozenset({"ngram"}), frozenset({"coupled"}), frozenset({"none"}))
    arms, pruned = enumerate_arms(space, can, lambda proposer: None)
    assert [name_of(arm) for arm in arms] == ["ngram k=3"]
    assert {each.name: each.reason for each in pruned} == {
        "eagle": "no draft for it; name one with --draft",
        "ngram typical": "this engine has no verification rule typical; it has coupled",
    }

"""How engines share the machine, by what they can and what memory there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.backends.backend import Sleep
from outdraft.errors import OptionError
from outdraft.tune.keeping import GIB, Memory, plan_keeping, room_for_one, roomy_gpus
from outdraft.tune.options import ASLEEP, SIDE_BY_SIDE, VISITS

SLEEP = Sleep("/sleep", "/wake")
H200 = Memory(GIB // 4, 120 * GIB, True, 140 * GIB, 139 * GIB)
SMALL = Memory(15 * GIB, 60 * GIB, True, 24 * GIB, 23 * GIB)
LAPTOP = Memory(GIB // 2, 12 * GIB)


def test_engines_that_can_sleep_do() -> None:
    keeping = plan_keeping(None, SLEEP, H200)
    assert keeping.how == ASLEEP
    assert keeping.most == 9, "13 GiB are left by the one that is awake"
    assert "140 GiB" in keeping.note


def test_a_lower_share_leaves_room_for_more() -> None:
    assert plan_keeping(None, SLEEP, H200, ("--gpu-memory-utilization", "0.8")).most == 19
    assert plan_keeping(None, SLEEP, SMALL, ("--gpu-memory-utilization=0.5",)).most == 3


def test_a_card_that_is_full_with_one_is_visited() -> None:
    keeping = plan_keeping(None, SLEEP, SMALL)
    assert keeping.how == VISITS
    assert "--gpu-memory-utilization" in keeping.note
    assert plan_keeping(ASLEEP, SLEEP, SMALL).how == ASLEEP, "who asks for it gets it"


def test_two_cards_with_room_for_two_engines_each_need_no_visits() -> None:
    tight = Memory(15 * GIB, 70 * GIB, True, 24 * GIB, 23 * GIB + GIB // 4)
    assert plan_keeping(None, SLEEP, tight).how == VISITS
    keeping = plan_keeping(None, SLEEP, tight, num_cards=2)
    assert (keeping.how, keeping.most, keeping.most_in_all) == (ASLEEP, 2, 4)
    scarce = replace(tight, main_free=60 * GIB)
    assert plan_keeping(None, SLEEP, scarce, num_cards=2).how == VISITS, "three fit, not four"
    assert plan_keeping(None, SLEEP, SMALL, num_cards=8).how == VISITS, "an arm without its off"


def test_weights_of_large_models_wait_in_main_memory() -> None:
    large = Memory(140 * GIB, 500 * GIB, True, 1400 * GIB, 1390 * GIB)
    assert plan_keeping(None, SLEEP, large).most == 3
    on_gpu = Sleep("/sleep", "/wake", keeps_weights=True)
    assert plan_keeping(ASLEEP, on_gpu, large).most == 1


@pytest.mark.parametrize(("main", "most"), [(35, 1), (53, 2), (54, 3), (71, 3), (72, 4), (400, 5)])
def test_main_memory_counts_the_one_that_is_awake_too(main: int, most: int) -> None:
    """It falls asleep before the next one is awake. One too many was planned, and engines were
    ended and started anew from block to block."""
    memory = Memory(16 * GIB, main * GIB, True, 80 * GIB, 79 * GIB)
    assert plan_keeping(ASLEEP, SLEEP, memory).most == most


def test_an_engine_is_told_the_share_that_was_planned_with() -> None:
    told = plan_keeping(None, SLEEP, H200, told_share=0.8)
    assert (told.share, told.most) == (0.8, 19)
    assert told.words == ASLEEP
    assert plan_keeping(VISITS, SLEEP, H200, told_share=0.8).share == 0.8
    assert plan_keeping(None, SLEEP, SMALL, told_share=0.9).share == 0.9, "where it is visited too"
    assert plan_keeping(None, None, LAPTOP, told_share=0.8).share is None
    for flags in (
        ("--gpu-memory-utilization", "0.7"),
        ("--gpu_memory_utilization=0.7",),
        ("--config", "vllm.yaml"),
    ):
        assert plan_keeping(None, SLEEP, H200, flags, told_share=0.8).share is None, flags
    assert plan_keeping(None, SLEEP, H200, ("--gpu_memory_utilization=0.8",)).most == 19


def test_plan_and_pool_have_one_rule_for_main_memory() -> None:
    large = Memory(140 * GIB, 500 * GIB, True, 1400 * GIB, 1390 * GIB)
    keeping = plan_keeping(None, SLEEP, large)
    each = keeping.each_bytes
    assert each == 142 * GIB
    assert keeping.most == 3
    assert 500 * GIB - 2 * each >= room_for_one(each, 3 * GIB), "the third has room while two sleep"
    assert 500 * GIB - 3 * each < room_for_one(each, 3 * GIB), "a fourth has none"
    assert room_for_one(each, 150 * GIB) == 150 * GIB, "what one really takes, where it is more"
    assert room_for_one(None, 100) == 150
    on_gpu = Sleep("/sleep", "/wake", keeps_weights=True)
    assert plan_keeping(ASLEEP, on_gpu, large).each_bytes == 2 * GIB
    assert plan_keeping(None, None, LAPTOP).each_bytes == 3 * GIB


def test_a_gpu_that_others_use_is_left_out() -> None:
    idle, busy = 79 * GIB, 20 * GIB
    assert roomy_gpus([idle, idle, idle, busy], 1) == [0, 1, 2]
    assert roomy_gpus([idle, idle - GIB, idle, busy], 2) == [0, 1], "a card of two is both of them"
    assert roomy_gpus([busy, idle], 1) == [0, 1], "engines begin with the first"
    assert roomy_gpus([idle], 2) == [0]
    assert roomy_gpus([], 1) == []


def test_what_engines_side_by_side_take_is_said() -> None:
    keeping = plan_keeping(None, None, LAPTOP, num_engines=4)
    assert keeping.memory == "4 engines side by side take about 12.9 GB of memory, 12.9 GB are free"
    assert keeping.most is None, "a rule of thumb: the pool looks at what they really take"


def test_without_sleep() -> None:
    assert plan_keeping(None, None, LAPTOP).how == SIDE_BY_SIDE
    assert plan_keeping(None, None, Memory(6 * GIB, 12 * GIB)).how == VISITS
    assert plan_keeping(None, None, H200).how == VISITS
    assert plan_keeping(VISITS, SLEEP, H200).how == VISITS
    divided = plan_keeping(SIDE_BY_SIDE, None, H200)
    assert (divided.share, divided.most) == (0.22, 4)
    assert "KV cache is smaller" in divided.note
    with pytest.raises(OptionError, match="cannot sleep"):
        plan_keeping(ASLEEP, None, LAPTOP)

"""Planted days: every fault is named within its stated delay, and good days are silent."""

from __future__ import annotations

import pytest

from outdraft.watch.alarms import KINDS
from tests.watch.faults import FAULTS, Fault, do_no_harm
from tests.watch.histories import Course, generate, replay

_WARM_UP = 30  # minutes before a fault in which nothing may be said either


def check(fault: Fault, seed: int) -> None:
    day = generate(fault.course(seed), seed)
    raised = replay(day, first=max(fault.at - _WARM_UP, 1))
    for replica in fault.replicas:
        found = [
            each.at - fault.at
            for each in raised
            if (each.alarm.kind, each.alarm.replica) == (fault.kind, replica)
        ]
        assert found, (fault.name, seed, replica, raised)
        assert 0 <= 60 * found[0] <= KINDS[fault.kind].delay_s, (fault.name, seed, replica, raised)
    others = [
        each
        for each in raised
        if each.alarm.kind not in (fault.kind, *fault.beside)
        or each.alarm.replica not in fault.replicas
        or each.at < fault.at
    ]
    assert others == [], (fault.name, seed)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_within_its_delay(fault: Fault) -> None:
    check(fault, 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_within_its_delay_on_other_days(fault: Fault) -> None:
    for seed in range(1, 9):
        check(fault, seed)


@pytest.mark.parametrize("kind", ["deployment_step", "long_texts_collapse"])
def test_who_chooses_how_to_draft_is_at_fault_only_where_it_is_slower(kind: str) -> None:
    """Less accepted since a deployment, or on long texts, may be another choice of method auto."""
    fault = next(each for each in FAULTS if each.kind == kind)
    day = generate(fault.course(0), 0)
    every = [replay(day, first=fault.at, drafts_as_it_pays=each) for each in (False, True)]
    said = [[each.alarm.evidence for each in raised if each.alarm.kind == kind] for raised in every]
    assert any("accepted" in each for each in said[0])
    assert not any("accepted" in each for each in said[1])


def test_a_good_morning_is_silent() -> None:
    for seed in range(2):
        course = Course(num_minutes=360)
        assert replay(generate(course, seed)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_hundred_good_days_are_silent(part: int) -> None:
    for seed in range(10 * part, 10 * part + 10):
        course = Course()
        if seed % 2:
            do_no_harm(course, seed // 2)
        assert replay(generate(course, seed)) == [], seed


def test_every_alarm_has_words_and_a_fault() -> None:
    assert {fault.kind for fault in FAULTS} == set(KINDS)
    for kind in KINDS.values():
        assert kind.delay_s > 0
        assert "\n" not in kind.advice + kind.command
        assert kind.alarm("http://a:1", 1.0, "figures").kind == kind.name

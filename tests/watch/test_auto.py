"""A server of ours that chooses in every round whether to draft: what is no fault of it, what it is
not advised, and which costs say nothing of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.step_costs import StepCosts
from outdraft.watch.benefit.costs import Costs, LoadCosts
from outdraft.watch.findings import Action, Source
from outdraft.watch.history import Histories
from outdraft.watch.watch import Watch
from outdraft.watch.weighing import costs_for, weigh
from tests.watch.servers import PlantedServer
from tests.watch.test_watch import BEGIN, RULES, Room, a_watch

STEPS = {f'outdraft:step_seconds{{tokens="{n}"}}': 0.03 + 0.001 * n for n in (1, 4, 16, 64)}
EAGLE = Costs((LoadCosts(3.0, {1.0: 1.05, 4.0: 3.0}, 0.02),), table=None, method="eagle")


def ours(method: str | None, **more: object) -> PlantedServer:
    server = PlantedServer(1, canary=0.0, method=method, **more)  # type: ignore[arg-type]
    server.page |= STEPS
    return server


@pytest.mark.parametrize(("method", "is_silent"), [("auto", True), ("ngram", False), (None, False)])
@pytest.mark.parametrize(
    ("kind", "more"),
    [("nothing_proposed", {"drafted": 0.002}), ("drafts_worthless", {"rate": 0.01})],
)
def test_where_no_draft_pays_auto_drafts_little_and_in_vain_and_that_is_no_fault(
    kind: str, more: dict[str, object], method: str | None, is_silent: bool
) -> None:
    room = Room({"a": ours(method, **more)})
    snapshot = room.watch_for(a_watch(room), 1800)
    assert (kind in {alarm.kind for alarm in snapshot.alarms}) == (not is_silent)


@pytest.mark.parametrize("method", ["auto", "eagle"])
def test_another_proposer_of_which_less_is_accepted_is_no_fault_of_auto(method: str) -> None:
    """Of three, one chooses cheap lookups, for which its acceptance falls by more than half."""
    rules = replace(RULES, interval_s=15.0)
    room = Room({name: ours(method, rate=0.6) for name in "abc"})
    watch = a_watch(room, rules)
    while room.now < BEGIN + 3600:
        snapshot = room.look(watch, 15.0)
    assert not snapshot.alarms
    room.servers["a"].rate = 0.2
    seen = set()
    while room.now < BEGIN + 5400:
        seen |= {alarm.kind for alarm in room.look(watch, 15.0).alarms}
    expected = {"acceptance_collapsed", "unlike_fellows"} if method == "eagle" else set()
    assert seen == expected


def test_a_replica_of_another_method_is_no_fellow() -> None:
    room = Room({name: ours("eagle", rate=0.5) for name in "abc"})
    room.servers["c"].method, room.servers["c"].rate = "draft_model", 0.2
    watch = a_watch(room, replace(RULES, interval_s=15.0))
    while room.now < BEGIN + 2700:
        snapshot = room.look(watch, 15.0)
    assert not snapshot.alarms


@pytest.mark.parametrize(("method", "is_used"), [("auto", False), ("eagle", True), (None, True)])
def test_costs_of_another_method_say_nothing_of_it(method: str | None, is_used: bool) -> None:
    histories, server, now = Histories(5.0), ours(method), BEGIN
    for _ in range(80):
        now += 5.0
        server.advance(5.0)
        histories.update({"a": server.reading(now)}, now)
    made = costs_for(histories["a"], EAGLE)
    assert made is not None
    assert (made is EAGLE) == is_used
    unnamed = replace(EAGLE, method=None)
    assert costs_for(histories["a"], unnamed) is unnamed
    found = weigh(dict(histories.items()), 300.0, now, EAGLE)["a"].benefit
    assert found is not None
    assert (found.assumes == EAGLE.assumes) == is_used


def test_costs_that_hold_for_one_alone_say_nothing_of_both() -> None:
    histories, now = Histories(5.0), BEGIN
    servers = {"a": ours("eagle"), "b": ours("auto")}
    for _ in range(80):
        now += 5.0
        for server in servers.values():
            server.advance(5.0)
        histories.update({name: each.reading(now) for name, each in servers.items()}, now)
    found = weigh(dict(histories.items()), 300.0, now, EAGLE)
    benefits = {name: each.benefit for name, each in found.items()}
    used = {name for name, each in benefits.items() if each and each.assumes == EAGLE.assumes}
    assert used == {"a"}
    assert benefits[""] is not None


@pytest.mark.parametrize("method", ["auto", "eagle"])
def test_shorter_drafts_are_no_advice_where_their_length_is_chosen(method: str) -> None:
    """Steps of four draft tokens cost three plain ones, of one little more than one."""
    room = Room({"a": ours(method, rate=0.7)})
    costs = replace(EAGLE, method=method, table=StepCosts({1: 0.03, 64: 0.031}))
    watch = Watch(RULES, now=room.now, costs=costs)
    for name in (f'accepted_tokens_per_pos_total{{position="{at}"}}' for at in range(4)):
        room.servers["a"].page[f"vllm:spec_decode_num_{name}"] = 0.0
    snapshot = room.watch_for(watch, 10)
    while room.now < BEGIN + 300:
        server = room.servers["a"]
        for at, drafts in enumerate((200, 140, 98, 69)):
            server._count(
                f'spec_decode_num_accepted_tokens_per_pos_total{{position="{at}"}}', drafts
            )
        snapshot = room.look(watch)
    advice = snapshot.replicas[0].advice
    assert (advice is not None and advice.action is Action.LOWER_K) == (method == "eagle")


def test_slices_are_a_control_of_auto_too() -> None:
    room = Room({"a": ours("auto", speedup=0.8)})
    room.servers["a"].canary = 0.01
    snapshot = room.watch_for(a_watch(room), 400)
    assert snapshot.fleet.benefit is not None
    assert snapshot.fleet.benefit.source is Source.CANARY
    assert snapshot.fleet.advice is not None
    assert snapshot.fleet.advice.words == "TURN OFF"

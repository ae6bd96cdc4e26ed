"""A deed is done to the next replica only when the one before it is seen to work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from outdraft.watch.actions import BARRED_S, Deed, Deeds, DeedState
from outdraft.watch.fellows import fellows_of, must_wait
from outdraft.watch.findings import Action
from outdraft.watch.history import Histories
from outdraft.watch.pasts import Pasts
from outdraft.watch.snapshot import ReplicaState
from outdraft.watch.watch import Watch
from tests.watch.servers import PlantedServer
from tests.watch.test_watch import ACTS, Room, a_watch

LOOK_S = 15.0
RULES = replace(ACTS, interval_s=LOOK_S)
OFF = Deed("b", Action.TURN_OFF, None, "", 1e6, engine="vllm", model="m")


class Loss:
    """Three replicas that should be turned off, and somebody who does `then` to each."""

    def __init__(self, then: Callable[[Room, str], str]) -> None:
        fleet = {name: PlantedServer(at, speedup=0.6) for at, name in enumerate("abc")}
        self.room = Room({**fleet, "plain": PlantedServer(9, speculates=False)})
        self.watch = a_watch(self.room, RULES)
        self.done: list[str] = []
        self._then = then

    def go_on(self, seconds: float, each: Callable[[], None] = lambda: None) -> None:
        end = self.room.now + seconds
        while self.room.now < end:
            self.room.look(self.watch, LOOK_S)
            each()
            self._work(self.watch)

    def _work(self, watch: Watch) -> None:
        while watch.wanted:
            deed = watch.wanted.pop(0)
            problem = ""
            if deed.state is DeedState.ASKED:
                self.done.append(deed.replica)
                problem = self._then(self.room, deed.replica)
            watch.done(deed, problem, self.room.now)


@pytest.mark.parametrize("problem", ["", "restart-vllm ended with code 1"])
def test_of_servers_that_leave_the_list_when_they_are_ended_one_is_ended(problem: str) -> None:
    """As pods do with --dns, lines with --targets, and instances with --prometheus."""

    def end(room: Room, name: str) -> str:
        room.servers.pop(name, None)
        return problem

    loss = Loss(end)
    loss.go_on(5400)
    assert len(loss.done) == 1
    [deed] = loss.watch.state.deeds.newest.values()
    assert deed.kind == ("vllm", "m")
    loss.room.servers["new"] = PlantedServer(5, speculates=False)  # came in its place, and writes
    loss.go_on(900)
    assert len(loss.done) == 2


def test_one_that_is_new_and_writes_nothing_speaks_for_nobody() -> None:
    def end(room: Room, name: str) -> str:
        del room.servers[name]
        room.servers["new"] = PlantedServer(5, running=0.0)
        return ""

    loss = Loss(end)
    loss.go_on(3600)
    assert len(loss.done) == 1


def test_what_was_fast_before_it_died_did_not_help() -> None:
    died: list[str] = []

    def turn_off(room: Room, name: str) -> str:
        room.servers[name].max_k = 0
        died.append(name)
        return ""

    loss = Loss(turn_off)
    dwell_s = 420.0  # minutes enough for a speed are there before it dies
    loss.watch.rules = replace(RULES, advice=replace(RULES.advice, dwell_s=dwell_s))

    def die() -> None:
        newest = loss.watch.state.deeds.newest
        late = {name for name in died if loss.room.now - newest[name].at >= dwell_s - LOOK_S}
        loss.room.down.update(late)

    loss.go_on(5400, die)
    assert len(loss.done) == 1
    [deed] = loss.watch.state.deeds.newest.values()
    assert deed.state is DeedState.NOT_KNOWN
    last = [each.notice.text for each in loss.watch.told if each.notice.kind == "action"][-1]
    assert last.endswith("it is not known whether it helped: it does not answer")


@pytest.mark.parametrize("state", [*DeedState])
def test_a_fellow_that_does_not_work_is_waited_for_a_day(state: DeedState) -> None:
    deeds = Deeds().with_deed(replace(OFF, replica="a", at=OFF.at - 3600, state=state))
    is_open = state in (DeedState.ASKED, DeedState.DONE, DeedState.TAKEN_BACK)
    assert must_wait(deeds, OFF, {"a": False}) is (state is not DeedState.GONE)
    assert must_wait(deeds, OFF, {"a": True}) is is_open
    assert must_wait(deeds, replace(OFF, at=OFF.at + BARRED_S), {"a": False}) is is_open


def test_what_did_not_help_is_not_done_to_others_whatever_came_after_it() -> None:
    a = replace(OFF, replica="a", at=OFF.at - 4000, state=DeedState.TAKEN_BACK)
    deeds = Deeds().ended(a, a.at)
    later = Deed("a", Action.LOWER_K, 2, "", OFF.at - 2000, DeedState.HELPED)
    for newest in (replace(a, state=DeedState.BACK), later):
        known = deeds.with_deed(newest)
        assert must_wait(known, OFF, {"a": True})
        assert must_wait(Deeds.from_json(known.to_json()), OFF, {"a": True})
        assert not must_wait(known, replace(OFF, action=Action.LOWER_K, k=2), {"a": True})
        assert not must_wait(known, replace(OFF, at=OFF.at + BARRED_S), {"a": True})


def test_what_failed_bars_its_own_replica_alone() -> None:
    a = replace(OFF, replica="a", at=OFF.at - 4000)
    deeds = Deeds().ended(a.ended("http 401", a.at), a.at)
    assert deeds.barred
    assert not must_wait(deeds, OFF, {"a": True})
    assert must_wait(deeds, OFF, {"a": False})


def test_a_state_of_an_earlier_version_bars_fellows_too() -> None:
    a = replace(OFF, replica="a", at=OFF.at - 4000, state=DeedState.TAKEN_BACK)
    failed = replace(OFF, replica="c").ended("http 401", OFF.at)
    written = Deeds().ended(a, a.at).ended(failed, OFF.at).to_json()
    del written["unhelpful"]
    for each in written["newest"].values():
        del each["engine"], each["model"]
    read = Deeds.from_json(written)
    assert must_wait(read.with_deed(replace(a, state=DeedState.BACK)), OFF, {"a": True})
    assert not must_wait(read, OFF, {"c": True})


def test_a_fellow_is_known_by_its_deed_when_its_history_is_forgotten() -> None:
    deeds = Deeds()
    for name, kind in (("a", OFF.kind), ("other model", ("vllm", "n")), ("old", (None, None))):
        deeds = deeds.with_deed(replace(OFF, replica=name, engine=kind[0], model=kind[1]))

    def fellows(histories: Histories, states: dict[str, ReplicaState]) -> dict[str, bool]:
        return fellows_of(OFF, deeds, histories, states, Pasts(), interval_s=5.0)

    assert fellows(Histories(5.0), {"a": ReplicaState.DOWN}) == {"a": False}
    histories = Histories(5.0)
    histories.update({"old": PlantedServer().reading(1.0)}, 1.0)
    assert fellows(histories, {}) == {"a": False, "old": False}


def test_of_replicas_that_are_gone_nothing_is_kept_for_long() -> None:
    a = replace(OFF, replica="a", state=DeedState.TAKEN_BACK)
    deeds = Deeds().ended(a, a.at).with_deed(OFF)
    assert deeds.without_gone(["b"], OFF.at + BARRED_S) is deeds
    later = deeds.without_gone(["b"], OFF.at + BARRED_S + 7200)
    assert [*later.newest] == ["b"]
    assert not later.barred
    assert not later.unhelpful
    assert Deeds().with_deed(OFF).without_gone([], OFF.at + 1).newest


def test_one_that_works_answers_and_wrote_lately() -> None:
    """Also just after a restart of the watch, when no minute was seen yet."""
    histories, server, now = Histories(5.0), PlantedServer(), 0.0
    while now < 1200:
        now += LOOK_S
        server.advance(LOOK_S)
        histories.update({"a": server.reading(now)}, now)
    pasts = Pasts()
    deeds = Deeds().with_deed(replace(OFF, replica="a", at=600.0, state=DeedState.HELPED))

    def works(at: float, state: ReplicaState = ReplicaState.UP) -> bool:
        wanted = replace(OFF, at=at)
        return fellows_of(wanted, deeds, histories, {"a": state}, pasts, interval_s=LOOK_S)["a"]

    assert not works(1230.0)
    pasts.of(dict(histories.items()), ())
    assert works(1230.0)
    assert not works(1230.0, ReplicaState.DOWN)
    assert not works(1230.0, ReplicaState.GONE)
    assert not works(1800.0)  # it answers, and writes nothing any more

"""The loop in virtual time: a look every five seconds at servers whose truth is known."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from outdraft.watch.actions import DeedState
from outdraft.watch.advice import AdviceRules
from outdraft.watch.findings import FLEET, Action, Advice, Benefit, Source
from outdraft.watch.metrics import metrics_page
from outdraft.watch.page import watch_page
from outdraft.watch.scraper import Unreadable
from outdraft.watch.snapshot import ReplicaState, Snapshot
from outdraft.watch.trail import Trail
from outdraft.watch.watch import Watch, WatchRules
from outdraft.watch.weighing import Worth
from tests.watch.servers import PlantedServer

BEGIN = 1_800_000_000.0
RULES = WatchRules(window_s=300.0, advice=AdviceRules(dwell_s=120.0, gpu_hour_cost=2.0))


@dataclass
class Room:
    """Servers, and a clock for all of them."""

    servers: dict[str, PlantedServer]
    now: float = BEGIN
    down: set[str] = field(default_factory=set)

    def look(self, watch: Watch, seconds: float = 5.0) -> Snapshot:
        self.now += seconds
        found = {}
        for name, server in self.servers.items():
            server.advance(seconds)
            is_down = name in self.down
            found[name] = Unreadable("refused", self.now) if is_down else server.reading(self.now)
        return watch.look(found, self.now)

    def watch_for(
        self, watch: Watch, seconds: float, act: Callable[[Watch], None] | None = None
    ) -> Snapshot:
        end = self.now + seconds
        while self.now < end:
            snapshot = self.look(watch)
            if act is not None:
                act(watch)
        return snapshot


def a_watch(room: Room, rules: WatchRules = RULES, folder: Path | None = None) -> Watch:
    files = {} if folder is None else {"events": folder / "e.jsonl", "state": folder / "s.json"}
    return Watch(rules, now=room.now, **files)


def kinds(watch: Watch) -> list[tuple[str, str]]:
    return [(told.notice.kind, told.notice.replica) for told in watch.told]


def test_plain_replicas_say_that_it_pays() -> None:
    room = Room(
        {
            "a": PlantedServer(1, speedup=1.5),
            "b": PlantedServer(2, speedup=1.5),
            "plain": PlantedServer(3, speculates=False),
        }
    )
    watch = a_watch(room)
    snapshot = room.watch_for(watch, 300)
    fleet = snapshot.fleet
    assert fleet.benefit is not None
    assert fleet.benefit.source is Source.CONTROL
    assert fleet.benefit.estimate == pytest.approx(1.5, rel=0.1)
    assert snapshot.says_keep
    views = {view.name: view for view in snapshot.replicas}
    assert [views[name].speculates for name in ("a", "b", "plain")] == [True, True, False]
    assert views["plain"].advice is None
    a = views["a"]
    assert a.advice is not None
    assert a.advice.action is Action.KEEP
    assert a.advice.lost_money_per_hour == pytest.approx(0.5 * 2.0, rel=0.2)
    assert a.window is not None
    assert a.window.acceptance_rate == pytest.approx(0.5, rel=0.1)
    assert a.window.times["tpot"].p50 == pytest.approx(0.02, rel=0.5)
    assert (a.model, a.version, a.engine, a.state) == ("m", "1.0", "vllm", ReplicaState.UP)
    assert fleet.window is not None
    assert fleet.window.running == pytest.approx(9.0)
    assert [kind for kind, _ in kinds(watch)] == ["advice"] * 3
    assert json.loads(json.dumps(snapshot.to_json()))["fleet"]["advice"]["words"] == "KEEP"


def test_a_loss_is_advised_against_after_the_dwell_time_and_not_before() -> None:
    room = Room({"a": PlantedServer(1), "plain": PlantedServer(2, speculates=False)})
    watch = a_watch(room)
    assert room.watch_for(watch, 400).says_keep
    room.servers["a"].speedup = 0.6
    turned = room.now
    snapshot = room.watch_for(watch, RULES.advice.dwell_s - 10)
    assert snapshot.says_keep
    snapshot = room.watch_for(watch, 2 * RULES.window_s)
    assert not snapshot.says_keep
    advice = snapshot.replicas[0].advice
    assert advice is not None
    assert advice.words == "TURN OFF"
    assert advice.since - turned <= RULES.window_s + RULES.advice.dwell_s
    assert advice.lost_tokens_per_hour is not None
    assert advice.lost_tokens_per_hour > 0


def test_a_collapse_a_restart_and_a_server_that_is_down_are_told() -> None:
    room = Room({name: PlantedServer(at) for at, name in enumerate("abc")})
    watch = a_watch(room)
    room.watch_for(watch, 3600)
    assert kinds(watch) == []
    room.servers["a"].rate = 0.1
    room.down.add("b")
    room.servers["c"].restart(room.now)
    room.servers["c"].version = "2.0"
    snapshot = room.watch_for(watch, 900)
    told = [(each.notice.kind, each.notice.replica, each.notice.text) for each in watch.told]
    assert ("replica", "b", "does not answer: refused") in told
    assert ("replica", "c", "was restarted") in told
    assert ("replica", "c", "version 1.0 → 2.0") in told
    assert ("alarm", "a") in kinds(watch)
    assert {alarm.kind for alarm in snapshot.alarms if alarm.replica == "a"} >= {
        "acceptance_collapsed"
    }
    views = {view.name: view for view in snapshot.replicas}
    assert (views["b"].state, views["b"].reason) == (ReplicaState.DOWN, "refused")
    assert not views["c"].alarms
    room.down.clear()
    del room.servers["c"]
    watch.told.clear()
    room.watch_for(watch, 10)
    assert kinds(watch) == [("replica", "b"), ("replica", "c")]
    assert len(told) == len(set(told))


def test_nothing_proposed_is_no_alarm_where_it_was_turned_off_on_purpose() -> None:
    room = Room({"a": PlantedServer(1, speedup=0.6), "plain": PlantedServer(2, speculates=False)})
    rules = WatchRules(window_s=300.0, advice=RULES.advice, acts=True)
    watch = a_watch(room, rules)

    def act(watch: Watch) -> None:
        while watch.wanted:
            deed = watch.wanted.pop(0)
            room.servers[deed.replica].max_k = 0 if deed.state is DeedState.ASKED else 4
            watch.done(deed, "", room.now)

    snapshot = room.watch_for(watch, 2400, act)
    assert snapshot.alarms == ()
    texts = [each.notice.text for each in watch.told if each.notice.kind == "action"]
    assert texts[1] == "TURN OFF is done"
    assert re.fullmatch(r"TURN OFF helped: (29|30)\S* ms per token after (49|50)\S*", texts[2])
    assert len(texts) == 3


def test_a_deed_that_does_not_help_is_taken_back_and_not_done_again() -> None:
    room = Room({"a": PlantedServer(1, speedup=0.6), "plain": PlantedServer(2, speculates=False)})
    watch = a_watch(room, WatchRules(window_s=300.0, advice=RULES.advice, acts=True))
    done: list[DeedState] = []

    def act(watch: Watch) -> None:
        """Says that it is done, and does nothing."""
        while watch.wanted:
            deed = watch.wanted.pop(0)
            done.append(deed.state)
            watch.done(deed, "", room.now)

    room.watch_for(watch, 3600, act)
    assert done == [DeedState.ASKED, DeedState.TAKEN_BACK]
    told = [each.notice for each in watch.told if each.notice.replica == "a"]
    assert [each.kind for each in told] == [
        "advice",
        "action",
        "action",
        "action taken back",
        "action",
    ]
    assert "did not help and is taken back" in told[3].text
    assert told[3].at - told[2].at <= 3 * RULES.advice.dwell_s + 60


ACTS = replace(RULES, acts=True)


def falling_room() -> Room:
    return Room({"a": PlantedServer(1), "plain": PlantedServer(2, speculates=False)})


def following(room: Room) -> Callable[[Watch], None]:
    def act(watch: Watch) -> None:
        while watch.wanted:
            deed = watch.wanted.pop(0)
            room.servers[deed.replica].max_k = 0 if deed.state is DeedState.ASKED else 4
            watch.done(deed, "", room.now)

    return act


def test_the_good_time_before_a_fall_is_no_part_of_the_speed_before() -> None:
    room = falling_room()
    watch = a_watch(room, ACTS)
    room.watch_for(watch, 3600)
    room.servers["a"].speedup = 0.8
    room.watch_for(watch, 2400, following(room))
    deed = watch.state.deeds.newest["a"]
    assert deed.state is DeedState.HELPED
    assert deed.speed is not None
    assert deed.speed.seconds == pytest.approx(0.03 / 0.8, rel=0.03)


def test_what_cannot_be_compared_is_left_as_it_is() -> None:
    room = Room({"a": PlantedServer(1, speedup=0.6), "plain": PlantedServer(2, speculates=False)})
    watch = a_watch(room, ACTS)

    def act(watch: Watch) -> None:
        """Done; from then on there is half as much to do."""
        while watch.wanted:
            deed = watch.wanted.pop(0)
            room.servers["a"].max_k, room.servers["a"].running = 0, 1.5
            watch.done(deed, "", room.now)

    room.watch_for(watch, 2400, act)
    assert watch.state.deeds.newest["a"].state is DeedState.NOT_KNOWN
    last = [each.notice for each in watch.told if each.notice.kind == "action"][-1]
    assert last.text.startswith("TURN OFF is done, it is not known whether it helped: ")
    assert not watch.state.deeds.barred


def test_the_first_advice_is_followed_after_the_dwell_time_only() -> None:
    room = Room({"a": PlantedServer(1, speedup=0.6), "plain": PlantedServer(2, speculates=False)})
    rules = replace(ACTS, advice=replace(ACTS.advice, dwell_s=900.0))
    watch = a_watch(room, rules)
    room.watch_for(watch, 1800)
    notices = {each.notice.kind: each.notice for each in watch.told if each.notice.replica == "a"}
    waited_s = notices["action"].at - notices["advice"].at
    assert 900.0 - rules.advice.first_dwell_s - 15 <= waited_s <= 900.0


def test_a_deed_that_takes_long_is_judged_from_its_end_on() -> None:
    room = Room({"a": PlantedServer(1, speedup=0.6), "plain": PlantedServer(2, speculates=False)})
    watch = a_watch(room, ACTS)

    def act(watch: Watch) -> None:
        """Only ten minutes after it was asked for."""
        if watch.wanted and room.now - watch.wanted[0].at >= 600:
            following(room)(watch)

    room.watch_for(watch, 2400, act)
    actions = [each.notice for each in watch.told if each.notice.kind == "action"]
    assert [each.text.split(":")[0] for each in actions] == [
        "TURN OFF", "TURN OFF is done", "TURN OFF helped",
    ]  # fmt: skip
    assert actions[2].data["at"] == actions[1].at
    assert actions[2].at - actions[1].at >= RULES.advice.dwell_s


def test_taking_back_that_fails_is_tried_again_also_after_a_restart(tmp_path: Path) -> None:
    room = Room({"a": PlantedServer(1, speedup=0.6), "plain": PlantedServer(2, speculates=False)})
    tried: list[float] = []

    def act(watch: Watch) -> None:
        """Nothing helps, and it can be taken back the fourth time."""
        while watch.wanted:
            deed = watch.wanted.pop(0)
            is_back = deed.state is DeedState.TAKEN_BACK
            tried.extend([room.now] if is_back else [])
            watch.done(deed, "http 500" if is_back and len(tried) < 4 else "", room.now)

    watch = a_watch(room, ACTS, tmp_path)
    while len(tried) < 2 and room.now < BEGIN + 3600:
        room.watch_for(watch, 5, act)
    assert len(tried) == 2
    watch.close(room.now)
    watch = a_watch(room, ACTS, tmp_path)
    room.watch_for(watch, 1200, act)
    assert [b - a for a, b in pairwise(tried)] == pytest.approx([30.0, 60.0, 120.0], abs=5)
    texts = [each.notice.text for each in watch.told if each.notice.kind == "action"]
    assert texts == ["TURN OFF could not be taken back: http 500", "TURN OFF is taken back"]
    assert watch.state.deeds.newest["a"].state is DeedState.BACK


def test_a_part_is_remembered_and_judged_by_its_own_benefit() -> None:
    room = falling_room()
    watch = a_watch(room, ACTS)
    room.watch_for(watch, 600)
    part = Benefit(Source.CONTROL, 0.8, 0.75, 0.85, room.now, room.now, "x", 3.0, "3-4 at a time")
    advice = Advice(Action.TURN_OFF_FOR, "a", BEGIN, "it loses", part=part.part)
    watch._weighing.worth["a"] = Worth(replace(part, estimate=1.2, part=""), (part,))
    watch._right_since["a"] = BEGIN
    watch._decide("a", advice, room.now)
    [deed] = watch.wanted
    assert deed.benefit == part
    watch.done(deed, "", room.now)
    later = room.now + RULES.advice.dwell_s
    better = replace(part, estimate=1.0, low=0.95, high=1.05, start=later)
    watch._weighing.worth["a"] = Worth(replace(better, estimate=0.5, part=""), (better,))
    watch._judge(watch.state.deeds.newest["a"], later)
    assert watch.state.deeds.newest["a"].state is DeedState.HELPED


def test_a_watch_goes_on_where_it_was_ended(tmp_path: Path) -> None:
    room = Room({name: PlantedServer(at) for at, name in enumerate("abc")})
    watch = a_watch(room, folder=tmp_path)
    room.watch_for(watch, 3600)
    room.servers["a"].rate = 0.1
    before = room.watch_for(watch, 900)
    watch.close(room.now)
    written = (tmp_path / "e.jsonl").read_text().splitlines()
    again = a_watch(room, folder=tmp_path)
    after = room.watch_for(again, 60)
    assert again.told == []
    assert (tmp_path / "e.jsonl").read_text().splitlines() == written
    assert after.since == before.since
    assert [(alarm.kind, alarm.replica, alarm.since) for alarm in after.alarms] == [
        (alarm.kind, alarm.replica, alarm.since) for alarm in before.alarms
    ]
    assert after.fleet.name == FLEET


def test_a_restart_while_nobody_answers(tmp_path: Path) -> None:
    """What is known of a replica that was seen, and of one that never was, can be shown."""
    room = Room({"a": PlantedServer(1), "plain": PlantedServer(2, speculates=False)})
    watch = a_watch(room, folder=tmp_path)
    room.watch_for(watch, 900)
    watch.close(room.now)
    room.servers["never seen"] = PlantedServer(3)
    room.down = {*room.servers}
    again = a_watch(room, ACTS, tmp_path)
    snapshot = room.watch_for(again, 300)
    engines = {view.name: view.engine for view in snapshot.replicas}
    assert engines == {"a": "vllm", "plain": "vllm", "never seen": None}
    assert {view.state for view in snapshot.replicas} == {ReplicaState.DOWN}
    assert snapshot.fleet.state is ReplicaState.DOWN
    assert again.wanted == []
    json.dumps(snapshot.to_json())
    assert 'replica="never seen"' in metrics_page(snapshot)
    assert "never seen" in watch_page(snapshot, Trail(), 5.0)
    room.down.clear()
    snapshot = room.watch_for(again, 300)
    assert {view.state for view in snapshot.replicas} == {ReplicaState.UP}

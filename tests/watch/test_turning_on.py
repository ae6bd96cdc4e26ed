"""What the watch turned off on our own server comes back by itself, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.watch.actions import DeedState
from outdraft.watch.findings import Action, Source
from outdraft.watch.limits import ServerLimits
from outdraft.watch.watch import Watch
from tests.watch.servers import PlantedServer
from tests.watch.test_watch import ACTS, RULES, Room, a_watch

BEFORE = ServerLimits((), canary_share=0.01)


def ours(speedup: float, **more: object) -> PlantedServer:
    return PlantedServer(1, speedup=speedup, canary=0.01, **more)  # type: ignore[arg-type]


def obeying(room: Room) -> Callable[[Watch], None]:
    """Servers of ours that do what they are told."""

    def act(watch: Watch) -> None:
        while watch.wanted:
            deed = watch.wanted.pop(0)
            if deed.state is DeedState.ASKED:
                deed = deed.with_limits(BEFORE)
            is_off = (deed.action is Action.TURN_OFF) == (deed.state is DeedState.ASKED)
            room.servers[deed.replica].max_k = 0 if is_off else 4
            watch.done(deed, "", room.now)

    return act


def texts(watch: Watch, kind: str = "action") -> list[str]:
    return [each.notice.text.split(":")[0] for each in watch.told if each.notice.kind == kind]


def test_it_is_turned_on_again_when_it_pays_again() -> None:
    room = Room({"a": ours(0.7)})
    watch = a_watch(room, ACTS)
    snapshot = room.watch_for(watch, 2400, obeying(room))
    assert texts(watch) == ["TURN OFF", "TURN OFF is done", "TURN OFF helped"]
    [view] = snapshot.replicas
    assert view.benefit is not None
    assert (view.benefit.source, view.benefit.is_stopped) == (Source.CANARY, True)
    assert view.benefit.estimate == pytest.approx(0.7, rel=0.05)
    assert view.advice is not None
    assert view.advice.words == "TURN OFF"
    assert view.advice.lost_tokens_per_hour is None  # it is off
    assert view.alarms == ()
    turned = room.now
    room.servers["a"].speedup = 1.4
    snapshot = room.watch_for(watch, 2400, obeying(room))
    assert room.servers["a"].max_k == 4
    assert texts(watch)[3:] == ["TURN ON", "TURN ON is done", "TURN ON helped"]
    on = next(each.notice for each in watch.told if each.notice.text.startswith("TURN ON"))
    assert on.kind == "advice"
    assert "drafts would make it 1.4" in on.text
    assert on.at - turned <= RULES.window_s + RULES.advice.dwell_s + 30
    assert snapshot.says_keep
    assert texts(watch, "advice") == ["TURN OFF", "TURN ON", "KEEP"]
    deed = watch.state.deeds.newest["a"]
    assert deed.wanted_limits() == BEFORE


@pytest.mark.slow
def test_it_stays_off_as_long_as_it_does_not_pay() -> None:
    room = Room({"a": ours(0.8)})
    watch = a_watch(room, ACTS)
    room.watch_for(watch, 4 * 3600, obeying(room))
    assert texts(watch) == ["TURN OFF", "TURN OFF is done", "TURN OFF helped"]
    assert texts(watch, "advice") == ["TURN OFF"]
    assert texts(watch, "alarm") == []


@pytest.mark.slow
def test_around_break_even_nothing_changes() -> None:
    room = Room({"a": ours(0.7)})
    watch = a_watch(room, ACTS)
    room.watch_for(watch, 2400, obeying(room))
    room.servers["a"].speedup = 1.0
    room.watch_for(watch, 4 * 3600, obeying(room))
    assert texts(watch) == ["TURN OFF", "TURN OFF is done", "TURN OFF helped"]


def test_turning_on_that_does_not_help_is_taken_back() -> None:
    """What slices promised does not hold when all steps have drafts."""
    room = Room({"a": ours(0.7)})
    watch = a_watch(room, ACTS)

    def act(watch: Watch) -> None:
        is_on = bool(watch.wanted) and watch.wanted[0].action is Action.TURN_ON
        obeying(room)(watch)
        if is_on:
            room.servers["a"].speedup = 0.7

    room.watch_for(watch, 2400, act)
    room.servers["a"].speedup = 1.4
    room.watch_for(watch, 3600, act)
    assert room.servers["a"].max_k == 0
    assert texts(watch)[3:] == ["TURN ON", "TURN ON is done", "TURN ON is taken back"]
    assert texts(watch, "action taken back") == ["TURN ON did not help and is taken back"]


def test_what_somebody_else_turned_off_is_only_advised() -> None:
    room = Room({"a": ours(1.5, max_k=0)})
    watch = a_watch(room, ACTS)
    snapshot = room.watch_for(watch, 2400, obeying(room))
    assert snapshot.replicas[0].advice is not None
    assert snapshot.replicas[0].advice.words == "TURN ON"
    assert snapshot.replicas[0].advice.lost_tokens_per_hour is not None
    assert not snapshot.says_keep
    assert texts(watch) == []
    room.servers["a"].speedup = 0.7  # and where it should be off, there is nothing to do
    room.watch_for(watch, 2400, obeying(room))
    assert texts(watch, "advice") == ["TURN ON", "TURN OFF"]
    assert texts(watch) == []


def test_plain_replicas_do_not_hide_what_slices_say() -> None:
    """Turned off, a server is as fast as a plain one: that says nothing of its drafts."""
    room = Room({"a": ours(0.7), "plain": PlantedServer(2, speculates=False, canary=0.0)})
    watch = a_watch(room, ACTS)
    snapshot = room.watch_for(watch, 2400, obeying(room))
    view = snapshot.replicas[0]
    assert view.benefit is not None
    assert view.benefit.source is Source.CANARY
    assert view.advice is not None
    assert view.advice.words == "TURN OFF"
    assert snapshot.fleet.advice is not None
    assert snapshot.fleet.advice.words == "TURN OFF"
    room.servers["a"].speedup = 1.5
    room.watch_for(watch, 2400, obeying(room))
    assert texts(watch)[-1] == "TURN ON helped"


def test_a_restarted_server_is_turned_off_again(tmp_path: Path) -> None:
    """Limits do not outlive it. So it is looked at anew, for the whole dwell time."""
    room = Room({"a": ours(0.7)})
    watch = a_watch(room, ACTS, tmp_path)
    room.watch_for(watch, 2400, obeying(room))
    room.servers["a"].restart(room.now)
    room.servers["a"].max_k = 4
    restarted = room.now
    room.watch_for(watch, 2400, obeying(room))
    assert texts(watch)[3:] == [
        "TURN OFF holds no more", "TURN OFF", "TURN OFF is done", "TURN OFF helped",
    ]  # fmt: skip
    again = [each.notice for each in watch.told if each.notice.kind == "action"][4]
    assert again.at - restarted >= RULES.advice.dwell_s
    watch.close(room.now)
    known = a_watch(room, ACTS, tmp_path).state.deeds
    assert known == watch.state.deeds
    assert known.newest["a"].on_limits == BEFORE


def test_the_dwell_time_holds_for_turning_on_too() -> None:
    room = Room({"a": ours(0.7)})
    rules = replace(ACTS, advice=replace(ACTS.advice, dwell_s=900.0))
    watch = a_watch(room, rules)
    room.watch_for(watch, 4800, obeying(room))
    assert texts(watch)[-1] == "TURN OFF helped"
    room.servers["a"].speedup = 1.4
    turned = room.now
    room.watch_for(watch, 3600, obeying(room))
    on = next(each.notice for each in watch.told if each.notice.text.startswith("TURN ON:"))
    assert on.at - turned >= 900.0


@pytest.mark.slow
def test_a_band_of_temperatures_goes_off_and_comes_back() -> None:
    server = ours(1.2, bands={"0": 1.5, "1+": 0.8})
    room = Room({"a": server})
    watch = a_watch(room, ACTS)

    def act(watch: Watch) -> None:
        while watch.wanted:
            deed = watch.wanted.pop(0)
            if deed.state is DeedState.ASKED:
                deed = deed.with_limits(BEFORE)
            wanted = deed.wanted_limits()
            assert wanted is not None
            server.off_bands = set(wanted.temperatures)
            watch.done(deed, "", room.now)

    room.watch_for(watch, 2400, act)
    off = "TURN OFF FOR temperature 1+"
    assert texts(watch) == [off, f"{off} is done", f"{off} helped"]
    assert server.off_bands == {"1+"}
    room.watch_for(watch, 2 * 3600, act)
    assert len(texts(watch)) == 3
    server.bands["1+"] = 1.3
    room.watch_for(watch, 2400, act)
    on = "TURN ON FOR temperature 1+"
    assert texts(watch)[3:] == [on, f"{on} is done", f"{on} helped"]
    assert server.off_bands == set()
    assert texts(watch, "advice") == [off, on, "KEEP"]

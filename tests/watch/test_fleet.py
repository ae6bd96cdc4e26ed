"""What is said and done of several replicas, where some do not answer, are gone, or were started
again without speculation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from outdraft.watch.actions import DeedState
from outdraft.watch.findings import FLEET
from outdraft.watch.metrics import metrics_page
from outdraft.watch.snapshot import ReplicaState, Snapshot
from outdraft.watch.watch import Watch
from tests.watch.servers import PlantedServer
from tests.watch.test_watch import ACTS, Room, a_watch


def ours(seed: int, speedup: float) -> PlantedServer:
    return PlantedServer(seed, speedup=speedup, canary=0.01)


def test_a_replica_that_never_answers_takes_nobodys_advice_away() -> None:
    room = Room({"never": PlantedServer(2), "a": ours(1, 1.5)}, down={"never"})
    snapshot = room.watch_for(a_watch(room), 300)
    assert snapshot.fleet.advice is not None
    assert (snapshot.fleet.advice.words, snapshot.fleet.advice.replica) == ("KEEP", FLEET)
    assert snapshot.says_keep
    assert snapshot.fleet.benefit is not None


def test_one_that_is_gone_speaks_for_nobody() -> None:
    room = Room({"gone": ours(1, 0.6), "a": ours(2, 1.5)})
    watch = a_watch(room)
    snapshot = room.watch_for(watch, 400)
    assert not snapshot.says_keep
    del room.servers["gone"]
    snapshot = room.watch_for(watch, 60)
    views = {view.name: view for view in snapshot.replicas}
    assert views["gone"].state is ReplicaState.GONE
    assert views["gone"].advice is not None
    assert views["gone"].advice.words == "TURN OFF"
    assert snapshot.fleet.advice is not None
    assert snapshot.fleet.advice.words == "KEEP"
    assert snapshot.says_keep


def flags(snapshot: Snapshot, metric: str) -> list[str]:
    """Series of the watch's own page that are not 0."""
    lines = metrics_page(snapshot).splitlines()
    return [each for each in lines if each.startswith(metric) and not each.endswith(" 0.0")]


def test_one_that_is_gone_is_on_the_metrics_page_as_gone_alone() -> None:
    room = Room({"gone": ours(1, 0.6), "a": ours(2, 1.5)})
    watch = a_watch(room)
    room.watch_for(watch, 400)
    del room.servers["gone"]
    [line] = [each for each in flags(room.watch_for(watch, 60), "outdraft") if '"gone"' in each]
    assert line.startswith("outdraft_watch_replica{")


@pytest.mark.parametrize("is_removed", [False, True])
@pytest.mark.parametrize("names", ["a", "ab"])
def test_what_stood_before_nobody_answered_is_no_answer_about_now(
    names: str, is_removed: bool
) -> None:
    room = Room({name: ours(at, 1.5) for at, name in enumerate(names)})
    watch = a_watch(room)
    assert room.watch_for(watch, 400).is_kept
    room.down |= {*names}
    if is_removed:
        room.servers.clear()
    snapshot = room.watch_for(watch, 30)
    assert not snapshot.is_kept
    assert snapshot.has_answered
    snapshot = room.watch_for(watch, 1.5 * snapshot.window_s)
    assert not snapshot.is_kept
    assert not flags(snapshot, "outdraft_watch_advice")
    assert not flags(snapshot, "outdraft_watch_lost")


def test_a_plain_replica_that_is_left_keeps_nothing() -> None:
    room = Room({"a": PlantedServer(1), "plain": PlantedServer(2, speculates=False)})
    watch = a_watch(room)
    assert room.watch_for(watch, 400).is_kept
    room.down.add("a")
    assert not room.watch_for(watch, 5).is_kept


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_loss_of_those_that_are_down_costs_nothing(names: str) -> None:
    """It stands: they may come back as they were."""
    room = Room({name: ours(at, 0.6) for at, name in enumerate(names)})
    watch = a_watch(room)
    snapshot = room.watch_for(watch, 400)
    assert snapshot.fleet.advice is not None
    assert snapshot.fleet.advice.lost_tokens_per_hour is not None
    room.down |= {*names}
    snapshot = room.watch_for(watch, 2 * snapshot.window_s)
    for view in (snapshot.fleet, *snapshot.replicas):
        assert view.advice is not None
        assert view.advice.words == "TURN OFF"
        assert view.advice.reason.startswith("nobody answered in the window")
        assert (view.advice.lost_tokens_per_hour, view.advice.benefit) == (None, None)
    room.down.clear()
    snapshot = room.watch_for(watch, 120)
    assert snapshot.fleet.advice is not None
    assert snapshot.fleet.advice.lost_tokens_per_hour is not None


@pytest.mark.parametrize("names", ["a", "ab"])
def test_advice_that_was_followed_ends(names: str) -> None:
    room = Room({name: ours(at, 0.6) for at, name in enumerate(names)})
    watch = a_watch(room)
    snapshot = room.watch_for(watch, 400)
    assert snapshot.fleet.advice is not None
    assert snapshot.fleet.advice.words == "TURN OFF"
    for server in room.servers.values():
        server.speculates, server.canary = False, None
        server.restart(room.now)
    watch.told.clear()
    snapshot = room.watch_for(watch, 60)
    assert (snapshot.fleet.advice, snapshot.fleet.speculates) == (None, False)
    assert all(view.advice is None for view in snapshot.replicas)
    told = [each.notice for each in watch.told if each.notice.kind.startswith("advice")]
    text = "TURN OFF was followed: there is no speculation any more"
    ended = {each.replica: (each.kind, each.text) for each in told}
    assert len(ended) == len(told)
    assert ended == dict.fromkeys([*names] + [FLEET] * (len(names) > 1), ("advice ended", text))


def test_a_restart_alone_follows_nothing() -> None:
    """Some engines have counters of drafts from their first text on."""
    room = Room({"a": ours(1, 0.6)})
    watch = a_watch(room)
    room.watch_for(watch, 400)
    server = room.servers["a"]
    server.restart(room.now)
    server.speculates, server.running = False, 0.0
    watch.told.clear()
    assert room.watch_for(watch, 60).fleet.advice is not None
    server.speculates, server.running = True, 3.0
    assert room.watch_for(watch, 120).fleet.advice is not None
    assert [each.notice.kind for each in watch.told] == ["replica"]


class Operator:
    """Restarts one after the other, as a command would."""

    def __init__(self, room: Room, then: Callable[[PlantedServer], None]) -> None:
        self.done: list[tuple[float, str]] = []
        self._room, self._then = room, then

    def __call__(self, watch: Watch) -> None:
        while watch.wanted:
            deed = watch.wanted.pop(0)
            server = self._room.servers[deed.replica]
            if deed.state is DeedState.ASKED:
                self.done.append((self._room.now, deed.replica))
                self._then(server)
            watch.done(deed, "", self._room.now)


def losing_room() -> Room:
    fleet = {name: PlantedServer(at, speedup=0.6) for at, name in enumerate("abc")}
    return Room({**fleet, "plain": PlantedServer(9, speculates=False)})


def turned_off(server: PlantedServer) -> None:
    server.max_k = 0


def test_replicas_are_changed_one_after_the_other_and_the_next_when_it_helped() -> None:
    room = losing_room()
    watch, operator = a_watch(room, ACTS), Operator(room, turned_off)
    room.watch_for(watch, 3600, operator)
    assert sorted(name for _, name in operator.done) == ["a", "b", "c"]
    helped = [each.notice.at for each in watch.told if "helped" in each.notice.text]
    assert len(helped) == 3
    for before, (after, _) in zip(helped, operator.done[1:], strict=False):
        assert before <= after


def test_what_did_not_help_is_not_done_to_the_others() -> None:
    room = losing_room()
    watch, operator = a_watch(room, ACTS), Operator(room, lambda server: None)
    room.watch_for(watch, 2 * 3600, operator)
    assert len(operator.done) == 1
    assert [each.state for each in watch.state.deeds.newest.values()] == [DeedState.BACK]


def test_a_deed_that_ends_a_server_is_done_to_no_other() -> None:
    room = losing_room()
    watch = a_watch(room, ACTS)

    def end(server: PlantedServer) -> None:
        room.down.update(name for name, each in room.servers.items() if each is server)

    operator = Operator(room, end)
    room.watch_for(watch, 2 * 3600, operator)
    assert len(operator.done) == 1
    assert [each.state for each in watch.state.deeds.newest.values()] == [DeedState.NOT_KNOWN]
    room.down.clear()  # it writes again, and nobody said that it did any harm
    room.watch_for(watch, 1800, operator)
    assert len(operator.done) > 1


def test_another_model_does_not_wait() -> None:
    fleet = {name: ours(at, 0.6) for at, name in enumerate("ab")}
    room = Room(fleet)
    watch, operator = a_watch(room, ACTS), Operator(room, turned_off)
    look = watch.look

    def with_models(found: object, now: float) -> object:
        named = {name: replace(each, model=name) for name, each in found.items()}  # type: ignore[attr-defined]
        return look(named, now)

    watch.look = with_models  # type: ignore[assignment,method-assign]
    room.watch_for(watch, 400, operator)
    assert sorted(name for _, name in operator.done) == ["a", "b"]

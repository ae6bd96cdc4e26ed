"""What a replica is compared with, and over which time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.observe.reading import Reading
from outdraft.watch.findings import FLEET, Source
from outdraft.watch.history import Histories, History
from outdraft.watch.weighing import Weighing, weigh
from tests.watch.servers import PlantedServer

BEGIN = 1_800_000_000.0


def read(servers: dict[str, tuple[PlantedServer, str | None]], now: float) -> dict[str, Reading]:
    """A look five seconds after the last one; servers with the models that they have."""
    found = {}
    for name, (server, model) in servers.items():
        server.advance(5.0)
        found[name] = replace(server.reading(now), model=model)
    return found


def test_another_model_is_no_control() -> None:
    servers = {
        "large": (PlantedServer(1, plain_s=0.045), "large"),
        "small": (PlantedServer(2, plain_s=0.01, speculates=False), "small"),
    }
    histories, now = Histories(5.0), BEGIN
    for _ in range(60):
        now += 5.0
        histories.update(read(servers, now), now)
    assert weigh(dict(histories.items()), 300.0, now, None)["large"].benefit is None
    servers["twin"] = (PlantedServer(3, plain_s=0.045, speculates=False), "large")
    for _ in range(60):
        now += 5.0
        histories.update(read(servers, now), now)
    found = weigh(dict(histories.items()), 300.0, now, None)["large"].benefit
    assert found is not None
    assert found.source is Source.CONTROL
    assert found.estimate == pytest.approx(1.5, rel=0.1)


@pytest.mark.parametrize("model", [None, "m"])
def test_a_model_that_is_not_known_has_no_control(model: str | None) -> None:
    servers = {
        "a": (PlantedServer(1), model),
        "plain": (PlantedServer(2, speculates=False), model),
    }
    histories, now = Histories(5.0), BEGIN
    for _ in range(60):
        now += 5.0
        histories.update(read(servers, now), now)
    found = weigh(dict(histories.items()), 300.0, now, None)
    assert (found["a"].benefit is None) == (model is None)


def test_several_models_have_no_common_benefit() -> None:
    servers = {
        name: (PlantedServer(at, speculates=not name.startswith("plain")), name[-1])
        for at, name in enumerate(("a 1", "b 2", "plain 1", "plain 2"))
    }
    histories, now = Histories(5.0), BEGIN
    for _ in range(60):
        now += 5.0
        histories.update(read(servers, now), now)
    found = weigh(dict(histories.items()), 300.0, now, None)
    assert found["a 1"].benefit is not None
    assert found["b 2"].benefit is not None
    assert found[FLEET].benefit is None


def test_what_was_before_does_not_hide_a_fall() -> None:
    fallen = PlantedServer(1, speedup=2.0)
    servers = {"a": (fallen, "m"), "plain": (PlantedServer(2, speculates=False), "m")}
    histories, now = Histories(5.0), BEGIN
    for look in range(1200):
        if look == 960:
            fallen.speedup = 1.0
        now += 5.0
        histories.update(read(servers, now), now)
    found = weigh(dict(histories.items()), 600.0, now, None)["a"].benefit
    assert found is not None
    assert found.estimate == pytest.approx(1.0, abs=0.1)
    assert found.start >= now - 700


@pytest.mark.parametrize("turns_on", [False, True])
def test_only_the_time_counts_in_which_a_replica_was_what_it_is_now(turns_on: bool) -> None:
    """Four minutes ago one was started again without speculation, or with it."""
    changed = PlantedServer(1, speculates=not turns_on, speedup=2.0)
    other = PlantedServer(2, speculates=turns_on is False, speedup=2.0)
    servers = {"a": (other, "m"), "b": (changed, "m")}
    histories, now = Histories(5.0), BEGIN
    for look in range(120):
        if look == 72:
            changed.speculates = turns_on
            changed.restart(now)
        now += 5.0
        histories.update(read(servers, now), now)
    found = weigh(dict(histories.items()), 600.0, now, None)["b" if turns_on else "a"].benefit
    assert found is not None
    assert found.source is Source.CONTROL
    assert found.estimate == pytest.approx(2.0, rel=0.05)


def test_a_large_fleet_is_weighed_in_turns() -> None:
    servers = {f"r{n}": (PlantedServer(n, canary=0.01), "m") for n in range(25)}
    histories, now = Histories(5.0), BEGIN
    for _ in range(20):
        now += 5.0
        histories.update(read(servers, now), now)
    weighing = Weighing(300.0, 10.0, None)
    every, turns = dict(histories.items()), []
    for _ in range(12):
        turns.append(weighing.weigh_due(every, now, 5.0))
        now += 5.0
    assert [len(turn) for turn in turns] == [10, 10, 6, 0, 0, 10, 10, 6, 0, 0, 10, 10]
    assert {name for turn in turns[:3] for name in turn} == {*every, FLEET}
    assert turns[:3] == turns[5:8]
    assert weighing.worth.keys() == {*every, FLEET}
    del every["r0"]
    weighing.weigh_due(every, now, 5.0)
    assert "r0" not in weighing.worth


def test_everybody_has_a_turn_before_the_first_one_has_another() -> None:
    """Also where looks are rare."""
    weighing, histories = Weighing(300.0, 10.0, None), {f"r{n}": History(60.0) for n in range(600)}
    seen: set[str] = set()
    for look in range(12):
        turn = weighing.weigh_due(histories, BEGIN + 60.0 * look, 60.0)
        assert not seen & {*turn}
        seen |= {*turn}
        if len(seen) == 601:
            break
    assert seen == {*histories, FLEET}

"""Charts after a restart: what the state has of the time before."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from outdraft.watch.charts import charts
from outdraft.watch.findings import FLEET
from outdraft.watch.remembered import remembered_trail
from outdraft.watch.site import Site
from outdraft.watch.trail import Point
from tests.watch.servers import PlantedServer
from tests.watch.test_watch import Room, a_watch


def a_room() -> Room:
    return Room({"a": PlantedServer(1), "plain": PlantedServer(2, speculates=False)})


def test_charts_go_on_after_a_restart(tmp_path: Path) -> None:
    room = a_room()
    watch = a_watch(room, folder=tmp_path)
    room.watch_for(watch, 2 * 3600)
    room.servers["a"].rate = 0.1
    snapshot = room.watch_for(watch, 1800)
    assert [alarm.kind for alarm in snapshot.alarms] == ["acceptance_collapsed"]
    watch.close(room.now)
    trail = remembered_trail(tmp_path / "s.json")
    assert 14 <= len(trail.points) <= 17
    *known, (_, last) = trail.points
    assert last[FLEET].benefit is None  # of the time until the next look
    for at, points in known[1:]:
        assert points.keys() == {"a", "plain", FLEET}
        assert points["plain"].acceptance_rate is None
        assert points[FLEET].benefit == pytest.approx(1.5, rel=0.15)
        assert points[FLEET].low is not None
        assert points["a"].seconds_per_token == pytest.approx(0.02, rel=0.1)
        assert at <= room.now
    assert known[3][1]["a"].acceptance_rate == pytest.approx(0.5, rel=0.1)
    assert known[-1][1]["a"].acceptance_rate == pytest.approx(0.1, rel=0.2)
    [span] = trail.spans(("a",))
    assert span.kind == "acceptance_collapsed"
    assert span.start >= snapshot.alarms[0].since

    site = Site(has_page=True, refresh_s=5, trail=trail)
    again = a_watch(room, folder=tmp_path)
    site.show(room.watch_for(again, 60))
    moments = [at for at, _ in site._trail.points]
    assert moments == sorted(moments)
    assert "Net benefit" in charts(site._trail, ["a", "plain"])


def test_benefits_are_kept_over_several_restarts(tmp_path: Path) -> None:
    room = a_room()
    for _ in range(4):
        watch = a_watch(room, folder=tmp_path)
        room.watch_for(watch, 1500)
        watch.close(room.now)
    written = json.loads((tmp_path / "s.json.histories").read_text())["benefits"]
    assert 8 <= len(written) <= 11
    assert all(b[0] - a[0] >= 600 for a, b in pairwise(written))


def test_without_a_state_charts_begin_anew(tmp_path: Path) -> None:
    assert remembered_trail(None).points == []
    assert remembered_trail(tmp_path / "s.json").points == []


def test_a_state_of_an_earlier_version_has_no_benefits(tmp_path: Path) -> None:
    room = a_room()
    watch = a_watch(room, folder=tmp_path)
    room.watch_for(watch, 1900)
    watch.close(room.now)
    file = tmp_path / "s.json.histories"
    data = json.loads(file.read_text())
    del data["benefits"]
    file.write_text(json.dumps(data))
    trail = remembered_trail(tmp_path / "s.json")
    assert trail.points
    assert all(points.get(FLEET, Point()).benefit is None for _, points in trail.points)

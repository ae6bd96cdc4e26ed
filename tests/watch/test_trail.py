from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from outdraft.watch.findings import FLEET
from outdraft.watch.trail import MOST_POINTS, Point, Span, Trail
from tests.watch.sample_snapshot import AT, REPLICAS, sample_snapshot, sample_trail


def test_a_point_is_what_a_view_says() -> None:
    point = Point.of(REPLICAS[1])
    assert point == Point(0.12, 0.87, 0.82, 0.93, 0.0219, ("drafts_worthless",))
    assert Point.of(REPLICAS[4]) == Point()


def test_a_day_of_looks_stays_small_and_reaches_back_to_the_start() -> None:
    trail, now = Trail(), sample_snapshot()
    for look in range(17_280):
        trail.add(replace(now, at=AT + 5 * look))
        assert len(trail.points) <= MOST_POINTS
    moments = [at for at, _ in trail.points]
    assert moments[0] == AT
    assert moments[-1] > AT + 86_400 - 600
    gaps = [b - a for a, b in pairwise(moments)]
    assert max(gaps) <= 2 * min(gaps)


def test_alarms_are_stretches() -> None:
    name = REPLICAS[1].name
    assert sample_trail().spans((FLEET, name)) == [
        Span(name, "drafts_worthless", AT - 29 * 60, AT)
    ]  # fmt: skip


def test_an_alarm_that_came_twice() -> None:
    trail, now = Trail(), sample_snapshot()
    calm = replace(REPLICAS[1], alarms=())
    for minute, view in enumerate((calm, REPLICAS[1], calm, REPLICAS[1], REPLICAS[1])):
        trail.add(replace(now, at=AT + 60 * minute, replicas=(view,)))
    stretches = [(span.start - AT, span.end - AT) for span in trail.spans([calm.name])]
    assert stretches == [(60, 120), (180, 240)]

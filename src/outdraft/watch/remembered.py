"""The trail that an earlier watch left in its state: so charts do not begin anew with each restart.

Every ten minutes of the histories, with the benefit of then. Of alarms only those that still stand
are known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path

from outdraft.observe.reading import Growth
from outdraft.watch.findings import FLEET, Alarm
from outdraft.watch.history import History
from outdraft.watch.history_json import history_from_json
from outdraft.watch.state import PastBenefit, load_benefits, load_histories, load_state
from outdraft.watch.trail import Point, Trail

_TEN_S = 600.0


def remembered_trail(state: Path | None) -> Trail:
    """Empty where there is no state. CorruptFileError where the file is not one of ours."""
    known = None if state is None else load_state(state)
    if state is None or known is None:
        return Trail()
    written = load_histories(state)
    histories = {name: history_from_json(each) for name, each in written.items()}
    return trail_of(histories, load_benefits(state), tuple(known.standings.alarms.values()))


def trail_of(
    histories: Mapping[str, History], benefits: Sequence[PastBenefit], alarms: Sequence[Alarm]
) -> Trail:
    moments: dict[int, dict[str, Growth]] = {}
    for name, history in histories.items():
        for ten in history.tens:
            moments.setdefault(int(ten.end // _TEN_S), {})[name] = ten
    trail = Trail()
    for _, growths in sorted(moments.items()):
        at = max(each.end for each in growths.values())
        together = Growth.together(growths.values())
        points = {name: _point(each) for name, each in growths.items()}
        if together is not None:
            points[FLEET] = _with_benefit(_point(together), _nearest(benefits, at))
        trail.put(at, {name: _with_alarms(each, name, at, alarms) for name, each in points.items()})
    if trail.points:
        at, points = trail.points[-1]  # nothing is known of the time until somebody looks again
        trail.put(at + 1, {name: Point(alarms=each.alarms) for name, each in points.items()})
    return trail


def _point(growth: Growth) -> Point:
    rate = None if growth.acceptance is None else growth.acceptance.rate
    return Point(rate, seconds_per_token=growth.seconds_per_token)


def _nearest(benefits: Sequence[PastBenefit], at: float) -> PastBenefit | None:
    """Of about the same ten minutes."""
    place = bisect_left(benefits, at, key=lambda each: each.at)
    near = [each for each in benefits[max(place - 1, 0) : place + 1] if abs(each.at - at) < _TEN_S]
    return min(near, key=lambda each: abs(each.at - at), default=None)


def _with_benefit(point: Point, found: PastBenefit | None) -> Point:
    if found is None:
        return point
    return point._replace(benefit=found.estimate, low=found.low, high=found.high)


def _with_alarms(point: Point, name: str, at: float, alarms: Sequence[Alarm]) -> Point:
    kinds = (each.kind for each in alarms if each.replica == name and each.since <= at)
    return point._replace(alarms=tuple(dict.fromkeys(kinds)))

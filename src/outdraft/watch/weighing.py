"""What speculation is worth to each replica, and to all of them together, from their histories.
Pure but for whose turn it is: which stretch of time is asked about, and of which source."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from outdraft.observe.counters import read_step_seconds
from outdraft.observe.reading import Growth
from outdraft.watch.benefit.canary import canary_by_part
from outdraft.watch.benefit.choose import choose, every_benefit
from outdraft.watch.benefit.control import control_by_load
from outdraft.watch.benefit.costs import Costs
from outdraft.watch.benefit.predicted import benefit_at_k
from outdraft.watch.findings import FLEET, Benefit, Source
from outdraft.watch.history import History

Fleet = Mapping[str, Sequence[Growth]]

# Where the window does not say it clearly, so many times as long is asked about.
_LONGER = 6.0
_MANY_MINUTES = 8
_PAUSE_S = 1.0  # for each replica, between two times that all are weighed
_AT_ONCE = 10  # in one look, at most; more where all would not have their turn


@dataclass(frozen=True, slots=True)
class Worth:
    benefit: Benefit | None = None
    parts: tuple[Benefit, ...] = ()  # by load, and by temperature
    by_k: Mapping[int, Benefit] = field(default_factory=dict)


class Weighing:
    """Replica by replica in turns: all of a large fleet in one look would hold that up."""

    def __init__(self, window_s: float, every_s: float, costs: Costs | None) -> None:
        """`every_s`: between two times that a replica is weighed, at least."""
        self._window_s, self._every_s, self._costs = window_s, every_s, costs
        self._weighed_at: dict[str, float] = {}
        self.worth: dict[str, Worth] = {}  # of those that speculate, and of all of them

    def pause_s(self, num_replicas: int) -> float:
        """Between two times that a replica is weighed."""
        return max(self._every_s, _PAUSE_S * num_replicas)

    def weigh_due(
        self, histories: Mapping[str, History], now: float, interval_s: float
    ) -> tuple[str, ...]:
        """Whose turn it was at this look, all of them together among them."""
        pause_s = self.pause_s(len(histories))
        self._weighed_at = {
            name: self._weighed_at.get(name, -math.inf) for name in (*histories, FLEET)
        }
        due = [name for name, at in self._weighed_at.items() if now - at >= pause_s]
        most = max(_AT_ONCE, math.ceil(len(self._weighed_at) * interval_s / pause_s))
        turn = tuple(sorted(due, key=self._weighed_at.__getitem__)[:most])
        self._weighed_at |= dict.fromkeys(turn, now)
        found = weigh(histories, self._window_s, now, self._costs, turn)
        kept = {
            name: each
            for name, each in self.worth.items()
            if name in self._weighed_at and name not in turn
        }
        self.worth = kept | found
        return turn


def weigh(
    histories: Mapping[str, History],
    window_s: float,
    now: float,
    costs: Costs | None,
    names: Collection[str] | None = None,
) -> dict[str, Worth]:
    """By replica that speculates, and of all of them; None: everybody's."""
    speculating, plain = _sides(histories)
    asked = {*speculating, FLEET} if names is None else {*names}
    found = {
        name: _worth(
            {name: history}, _alike(plain, history), window_s, now, costs_for(history, costs)
        )
        for name, history in speculating.items()
        if name in asked or (len(speculating) == 1 and FLEET in asked)
    }
    if FLEET not in asked or not speculating:
        return found
    if len(speculating) == 1:
        return {**found, FLEET: next(iter(found.values()))}
    first, *others = speculating.values()
    if any(kind_of(each) != kind_of(first) for each in others):
        return {**found, FLEET: Worth()}  # several models have no common benefit
    drafting = {name: each for name, each in speculating.items() if not each.is_stopped}
    together = drafting or speculating
    tables = [costs_for(each, costs) for each in together.values()]
    is_for_all = all(table is costs for table in tables)
    of_all = costs if is_for_all else next(table for table in tables if table is not costs)
    return {**found, FLEET: _worth(together, _alike(plain, first), window_s, now, of_all)}


def costs_for(history: History, baseline: Costs | None) -> Costs | None:
    """Those of a baseline, or the server's own where that was measured with another method."""
    method = None if history.last is None else history.last.method
    return baseline if is_measured_with(baseline, method) else costs_of(history)


def is_measured_with(costs: Costs | None, method: str | None) -> bool:
    """Where one of the two is not known, as of other engines, it is taken to be so."""
    return costs is not None and (method == costs.method or None in (method, costs.method))


def costs_of(history: History) -> Costs | None:
    """From the steps that our own server measured when it started."""
    last = history.last
    if last is None or last.engine != "outdraft":
        return None
    return Costs.from_steps(read_step_seconds(last.page))


def _sides(
    histories: Mapping[str, History],
) -> tuple[dict[str, History], dict[str, History]]:
    speculating: dict[str, History] = {}
    plain: dict[str, History] = {}
    for name, history in histories.items():
        if history.last is not None:
            (speculating if history.last.speculates else plain)[name] = history
    return speculating, plain


def kind_of(history: History) -> tuple[str | None, str | None]:
    last = history.last
    return (None, None) if last is None else (last.engine, last.model)


def _alike(plain: Mapping[str, History], of: History) -> dict[str, History]:
    """Those with the same engine and model. Of a model that is not known nothing can be said: a
    small model beside a large one would be taken for its speed without speculation."""
    kind = kind_of(of)
    if None in kind:
        return {}
    return {name: each for name, each in plain.items() if kind_of(each) == kind}


def _worth(
    speculating: Mapping[str, History],
    plain: Mapping[str, History],
    window_s: float,
    now: float,
    costs: Costs | None,
) -> Worth:
    """Of the window, or of longer where only that is clear and the window does not contradict.
    Where drafts are turned off only slices say what they would give: all else is as without."""
    if all(each.is_stopped for each in speculating.values()):
        plain, costs = {}, None
    newest = _of_stretch(speculating, plain, now - window_s, costs)
    short = newest.benefit
    if short is None or short.is_gain or short.is_loss:
        return newest
    longer = _of_stretch(speculating, plain, now - _LONGER * window_s, costs)
    long = longer.benefit
    if long is None or not (long.is_gain or long.is_loss):
        return newest
    if short.low is not None and short.high is not None:
        is_alike = short.low <= long.estimate <= short.high and short.source is long.source
        return longer if is_alike else newest
    return longer


def _of_stretch(
    speculating: Mapping[str, History],
    plain: Mapping[str, History],
    since: float,
    costs: Costs | None,
) -> Worth:
    own = _stretches(speculating, since, speculates=True)
    others = _stretches(plain, since, speculates=False)
    benefit = choose(every_benefit(own, others, costs))
    by_part: Mapping[Source, Callable[[], tuple[Benefit, ...]]] = {
        Source.CONTROL: lambda: control_by_load(own, others),
        Source.CANARY: lambda: canary_by_part(own),
        Source.COSTS: tuple,
    }
    chooses_k = any(each.drafts_as_it_pays for each in speculating.values())
    parts = () if benefit is None else by_part[benefit.source]()
    by_k = {} if costs is None or chooses_k else benefit_at_k(costs, own)
    return Worth(benefit, parts, by_k)


def _stretches(histories: Mapping[str, History], since: float, *, speculates: bool) -> Fleet:
    """Minutes where there are enough of them, else every look: finer ones cost more and say no
    more. Only of the time in which a replica was what it is now: one that was started again without
    speculation is no control with its past."""
    found: dict[str, list[Growth]] = {}
    for name, history in histories.items():
        rows = _within(history.minutes, since, speculates)
        if len(rows) < _MANY_MINUTES:
            rows = _within(history.fine, since, speculates) or rows
        if rows:
            found[name] = rows
    return found


def _within(kept: Iterable[Growth], since: float, speculates: bool) -> list[Growth]:
    newer = (each for each in kept if (each.start + each.end) / 2 >= since)
    return [each for each in newer if (each.acceptance is not None) == speculates]

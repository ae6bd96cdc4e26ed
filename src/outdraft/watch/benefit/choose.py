"""Which source is believed: the most direct one that has an interval. Pure."""

from collections.abc import Mapping, Sequence

from outdraft.observe.reading import Growth
from outdraft.watch.benefit.canary import canary_benefit
from outdraft.watch.benefit.control import control_benefit
from outdraft.watch.benefit.costs import Costs, costs_benefit
from outdraft.watch.findings import Benefit

Fleet = Mapping[str, Sequence[Growth]]


def every_benefit(speculating: Fleet, plain: Fleet, costs: Costs | None) -> tuple[Benefit, ...]:
    """Of each source that can say something, the most direct first."""
    found = (
        control_benefit(speculating, plain),
        canary_benefit(speculating),
        None if costs is None else costs_benefit(costs, speculating),
    )
    return tuple(each for each in found if each is not None)


def choose(benefits: Sequence[Benefit]) -> Benefit | None:
    """The first that has an interval, else the first at all."""
    sure = (each for each in benefits if each.low is not None)
    return next(sure, benefits[0] if benefits else None)

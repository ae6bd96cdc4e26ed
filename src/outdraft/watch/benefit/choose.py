"""Which source is believed: the most direct one that has an interval. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from outdraft.observe.reading import Growth
from outdraft.watch.benefit.canary import canary_benefit
from outdraft.watch.benefit.control import control_benefit
from outdraft.watch.benefit.costs import Costs
from outdraft.watch.benefit.predicted import costs_benefit
from outdraft.watch.findings import Benefit

Fleet = Mapping[str, Sequence[Growth]]


def every_benefit(speculating: Fleet, plain: Fleet, costs: Costs | None) -> Iterator[Benefit]:
    """Of each source that can say something, the most direct first; each is worked out when it is
    asked for."""
    if (control := control_benefit(speculating, plain)) is not None:
        yield control
    if (canary := canary_benefit(speculating)) is not None:
        yield canary
    if costs is not None and (predicted := costs_benefit(costs, speculating)) is not None:
        yield predicted


def choose(benefits: Iterable[Benefit]) -> Benefit | None:
    """The first that has an interval, else the first at all."""
    first: Benefit | None = None
    for each in benefits:
        if each.low is not None:
            return each
        first = first or each
    return first

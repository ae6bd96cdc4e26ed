from __future__ import annotations

from dataclasses import replace

from outdraft.watch.benefit.choose import choose, every_benefit
from outdraft.watch.findings import Benefit, Source
from tests.watch.benefit.planted import World, constant
from tests.watch.benefit.test_predicted import costs

SURE = Benefit(Source.CONTROL, 1.2, 1.1, 1.3, 0.0, 1.0, "")
CANARY, COSTS = replace(SURE, source=Source.CANARY), replace(SURE, source=Source.COSTS)


def unsure(benefit: Benefit) -> Benefit:
    return replace(benefit, low=None, high=None)


def test_the_most_direct_one_that_has_an_interval() -> None:
    assert choose([SURE, CANARY, COSTS]) is SURE
    assert choose([unsure(SURE), CANARY, COSTS]) is CANARY
    assert choose([unsure(CANARY), COSTS]) is COSTS
    assert choose([unsure(CANARY), unsure(COSTS)]) == unsure(CANARY)
    assert choose([]) is None


def test_every_source_in_order() -> None:
    world = World.made(0)
    parts = zip(
        world.replica(constant(1.5), (4,)),
        world.with_canary(constant(1.5), (4,)),
        world.drafting(0.7, 3, (4,)),
        strict=True,
    )
    own = [
        replace(a, counters={**a.counters, **c.counters}, slices=b.slices, acceptance=c.acceptance)
        for a, b, c in parts
    ]
    plain = {"p": world.replica(constant(1.0), (4,))}
    found = tuple(every_benefit({"a": own}, plain, costs()))
    assert [each.source for each in found] == [Source.CONTROL, Source.CANARY, Source.COSTS]
    assert all(1 < each.estimate < 2.5 for each in found)
    assert [each.source for each in every_benefit({"a": own}, {}, None)] == [Source.CANARY]
    assert tuple(every_benefit({}, {}, costs())) == ()

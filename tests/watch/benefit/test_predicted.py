"""Costs and live acceptance: planted speedups are found, and shorter drafts are judged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from outdraft.acceptance import Acceptance
from outdraft.observe.reading import Growth
from outdraft.watch.benefit.costs import Costs, LoadCosts
from outdraft.watch.benefit.predicted import benefit_at_k, costs_benefit
from outdraft.watch.findings import Benefit, Source
from tests.watch.benefit.planted import World, growth, score

RATE, K, SPREAD = 0.7, 3, 0.08
# The chance varies between looks, so the mean of its powers is more than the power of the mean.
LENGTH = 1 + RATE + (RATE**2 + SPREAD**2) + (RATE**3 + 3 * RATE * SPREAD**2)
ERROR = 0.05


def cost(load: float) -> float:
    return 1 + 0.1 * load


def costs(draw: np.random.Generator | None = None, k: float = K) -> Costs:
    def noise() -> float:
        return 1.0 if draw is None else float(np.exp(draw.normal(0, ERROR)))

    return Costs(tuple(LoadCosts(n, {k: cost(n) * noise()}, ERROR) for n in (1.0, 4.0, 16.0)))


def window(seed: int, load: float) -> Benefit | None:
    world = World.made(seed)
    return costs_benefit(costs(world.draw), {"a": world.drafting(RATE, K, (load,), spread=SPREAD)})


def test_planted_speedups_are_in_their_intervals() -> None:
    found = score(lambda seed: window(seed, 4), LENGTH / cost(4), 500)
    assert 0.93 <= found.coverage <= 0.97
    assert abs(found.bias) < 0.01


@pytest.mark.parametrize(("load", "is_gain"), [(1, True), (24, False)])
def test_load_turns_a_gain_into_a_loss(load: int, is_gain: bool) -> None:
    found = window(0, load)
    assert found is not None
    assert (found.is_gain, found.is_loss) == (is_gain, not is_gain)
    assert found.estimate == pytest.approx(LENGTH / cost(load), rel=0.15)
    assert (found.source, found.running) == (Source.COSTS, load)
    assert "tune" in found.assumes


def test_several_loads_count_by_their_time() -> None:
    world = World.made(1)
    found = costs_benefit(costs(), {"a": world.drafting(RATE, K, (1, 8), spread=0.0)})
    expected = 1 + RATE + RATE**2 + RATE**3
    assert found is not None
    each = expected / cost(1), expected / cost(8)
    assert found.estimate == pytest.approx((each[0] + 8 * each[1]) / 9, rel=0.05)


def test_nothing_is_said_far_from_what_was_measured() -> None:
    rows = World.made(0).drafting(RATE, K, (40,))
    assert costs_benefit(costs(), {"a": rows}) is None
    assert costs_benefit(costs(), {}) is None
    silent = [replace(each, acceptance=None) for each in rows]
    assert costs_benefit(costs(), {"a": silent}) is None


@pytest.mark.parametrize(("far", "is_enough"), [(5, False), (1, True)])
def test_a_small_part_of_the_time_says_nothing_of_all(far: int, is_enough: bool) -> None:
    """Where it was measured it gains; far from that, where most of the time is, nobody knows."""
    loads = (8,) * 10 + (40,) * far
    found = costs_benefit(costs(), {"a": World.made(3).drafting(0.9, K, loads)})
    assert found is not None
    assert found.share is not None
    assert (found.share > 0.5) == is_enough
    assert found.is_gain == is_enough
    assert (found.low is None) == (not is_enough)
    assert f"{found.share:.0%} of the time of texts" in found.assumes
    every = benefit_at_k(costs(), {"a": World.made(3).drafting(0.9, K, loads)})
    assert all((each.low is None) == (not is_enough) for each in every.values())


def test_a_server_that_drafts_nothing_gains_nothing() -> None:
    counters = {"num_tokens": 100.0, "num_requests": 1.0}
    rows = [growth(at, 2.0, counters, acceptance=Acceptance()) for at in range(20)]
    found = costs_benefit(costs(), {"a": rows})
    assert found is not None
    assert (found.estimate, found.low, found.high) == (1.0, 1.0, 1.0)


def test_steps_without_a_draft_cost_a_plain_step() -> None:
    """As with n-grams: of 100 steps 20 have drafts, and half of their tokens are accepted."""
    counts = Acceptance(20, 60, 30, 80, [15, 10, 5], [20, 20, 20])
    rows = [growth(at, 4.0, {"num_tokens": 130.0}, acceptance=counts) for at in range(20)]
    found = costs_benefit(costs(), {"a": rows})
    assert found is not None
    assert found.estimate == pytest.approx(1.3 / (0.8 + 0.2 * cost(4)))


def test_shorter_drafts() -> None:
    """Half of the tokens is accepted: the third costs more than it gives."""
    made = Costs((LoadCosts(4.0, {1.0: 1.2, 3.0: 1.9}, ERROR),))
    fleet = {"a": World.made(2).drafting(0.5, 3, (4,), spread=0.0)}
    found = benefit_at_k(made, fleet)
    now = costs_benefit(made, fleet)
    assert now is not None
    assert found.keys() == {1, 2, 3}
    assert found[3].estimate == pytest.approx(now.estimate, rel=0.01)
    assert found[1].estimate == pytest.approx(1.5 / 1.2, rel=0.02)
    assert found[1].estimate > found[2].estimate > found[3].estimate
    assert all(each.low is not None for each in found.values())


BY_LENGTH = Costs((LoadCosts(4.0, {1.0: 1.1, 5.0: 1.5}, ERROR),))


def rows_of(counts: Acceptance) -> dict[str, list[Growth]]:
    tokens = {"num_tokens": float(counts.num_drafts + counts.num_accepted_tokens)}
    return {"a": [growth(at, 4.0, tokens, acceptance=counts) for at in range(20)]}


@pytest.mark.parametrize("drafted", [[100, 100, 0, 0, 0], []])
def test_a_length_that_is_used_already_gives_what_there_is_now(drafted: list[int]) -> None:
    """Counters keep the positions of longer drafts that were made before."""
    fleet = rows_of(Acceptance(100, 200, 110, 0, [70, 40, 0, 0, 0], drafted))
    now = costs_benefit(BY_LENGTH, fleet)
    found = benefit_at_k(BY_LENGTH, fleet)
    assert now is not None
    assert found.keys() == {1, 2}
    assert found[2].estimate == pytest.approx(now.estimate, rel=1e-4)
    assert found[1].estimate < found[2].estimate


def uneven(k: int) -> Acceptance:
    """Drafts of 1 to 5 tokens, 3.4 on average, of which at most k are kept."""
    draw, rounds = np.random.default_rng(0), 20_000
    lengths = draw.choice([1, 2, 3, 4, 5], p=[0.15, 0.15, 0.15, 0.2, 0.35], size=rounds)
    lengths = np.minimum(lengths, k)
    right = np.cumprod(draw.random((rounds, 5)) < 0.75, axis=1).sum(1)
    counts = Acceptance()
    for drafted, accepted in zip(lengths, np.minimum(right, lengths), strict=True):
        counts.record(int(drafted), int(accepted))
    return counts


@pytest.mark.parametrize("is_reported", [True, False])
def test_shorter_limits_cut_only_the_long_ones_of_uneven_drafts(is_reported: bool) -> None:
    counts = uneven(5)
    if not is_reported:
        counts.drafted_per_position.clear()
    found = benefit_at_k(BY_LENGTH, rows_of(counts))
    assert found.keys() == {1, 2, 3, 4, 5}
    for k, each in found.items():
        true = costs_benefit(BY_LENGTH, rows_of(uneven(k)))
        assert true is not None
        assert 0.92 * true.estimate < each.estimate < 1.005 * true.estimate
    assert found[4].estimate < found[5].estimate


def test_a_last_position_that_is_never_accepted_is_drafted_all_the_same() -> None:
    fleet = rows_of(Acceptance(100, 300, 60, 0, [40, 20, 0]))
    found, now = benefit_at_k(BY_LENGTH, fleet), costs_benefit(BY_LENGTH, fleet)
    assert now is not None
    assert found.keys() == {1, 2, 3}
    assert found[3].estimate == pytest.approx(now.estimate, rel=1e-4)
    assert found[2].estimate > found[3].estimate


def test_a_load_with_shorter_drafts_or_none_is_weighed_all_the_same() -> None:
    """As with a schedule: 4 tokens alone, 2 among four, none among sixteen."""
    made = Costs(tuple(LoadCosts(n, {1.0: 1.1, 5.0: 1.5}, ERROR) for n in (1.0, 4.0, 16.0)))
    alone = Acceptance(100, 400, 200, 0, [80, 60, 40, 20], [100] * 4)
    among = Acceptance(100, 200, 110, 0, [70, 40, 0, 0], [100, 100, 0, 0])
    crowd = Acceptance(0, 0, 0, 100, [0] * 4, [0] * 4)
    looks = ((1.0, alone, 300.0), (4.0, among, 210.0), (16.0, crowd, 100.0))
    rows = [
        growth(3 * at + part, load, {"num_tokens": tokens}, acceptance=counts)
        for at in range(20)
        for part, (load, counts, tokens) in enumerate(looks)
    ]
    found, now = benefit_at_k(made, {"a": rows}), costs_benefit(made, {"a": rows})
    assert now is not None
    assert found.keys() == {1, 2, 3, 4}
    assert found[4].estimate == pytest.approx(now.estimate, rel=1e-4)
    assert {each.running for each in found.values()} == {now.running}


def test_no_length_is_judged_where_nothing_was_drafted() -> None:
    silent = Acceptance(0, 0, 0, 100, [0] * 5, [0] * 5)
    counters = {"num_tokens": 100.0}
    rows = [growth(at, 4.0, counters, acceptance=silent) for at in range(20)]
    assert benefit_at_k(BY_LENGTH, {"a": rows}) == {}


# ------------------------------------------------------------ what a server timed at its start

TABLE = {1: 0.03, 4: 0.031, 8: 0.036, 16: 0.05, 64: 0.15}  # tokens of a step → seconds
LOAD = 4


def timed_rows(
    draw: np.random.Generator, machine: float, overhead: float, drafting: float
) -> tuple[list[Growth], float]:
    """Windows and the true speedup. A step takes `machine` times what the table says, and
    `overhead` and `drafting` more, in units of a plain step; drafting with drafts only."""
    plain_s = TABLE[4] * (machine + overhead)
    round_s = TABLE[16] * machine + TABLE[4] * (overhead + drafting)
    rows = World(draw, np.ones(60)).drafting(RATE, K, (LOAD,), spread=SPREAD)
    timed = []
    for each in rows:
        assert each.acceptance is not None
        rounds, tokens = each.acceptance.num_drafts, each.counters["num_tokens"]
        seconds = rounds * round_s * float(np.exp(draw.normal(0, 0.2)))
        slices = {
            ("speculating", "3-4"): (tokens, seconds),
            ("speculating", "temperature 0"): (1, 9),
        }
        timed.append(replace(each, slices=slices))
    return timed, LENGTH * plain_s / round_s


@pytest.mark.parametrize(
    ("machine", "overhead", "drafting"),
    [(1, 0, 0), (1.5, 0, 0), (0.7, 0, 0), (1, 0.5, 0), (1, 0, 0.6), (1.2, 0.3, 0.4)],
    ids=["as then", "slower", "faster", "sampling", "drafting", "all of it"],
)
def test_the_interval_of_a_servers_own_table_holds_what_the_table_does_not_know(
    machine: float, overhead: float, drafting: float
) -> None:
    """The table is noisy too: 3 % at each size."""
    num_windows, inside, widths = 40, 0, []
    for seed in range(num_windows):
        draw = np.random.default_rng(seed)
        noisy = {size: each * float(np.exp(draw.normal(0, 0.03))) for size, each in TABLE.items()}
        made = Costs.from_steps(noisy)
        rows, truth = timed_rows(draw, machine, overhead, drafting)
        assert made is not None
        found = costs_benefit(made, {"a": rows})
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= truth <= found.high
        widths.append(found.high / found.low)
    assert inside >= 0.94 * num_windows
    # No wider than the doubt: what the three explanations differ by, and the error of the table.
    cost = TABLE[16] / TABLE[4]
    more = cost * (machine - 1) + overhead + drafting
    doubt = 1 + more if more > 0 else cost / (cost + more)
    assert np.median(widths) < 1.6 * doubt


def test_a_table_alone_gives_no_interval() -> None:
    """Steps of 5 tokens take twice as long as those of 1; nothing is said of what they take now."""
    made = Costs.from_steps({1: 0.03, 5: 0.06, 64: 0.5})
    assert made is not None
    counts = Acceptance(100, 400, 200, 0, [100, 60, 30, 10], [100] * 4)
    rows = [growth(at, 1.0, {"num_tokens": 300.0}, acceptance=counts) for at in range(20)]
    found = costs_benefit(made, {"a": rows})
    assert found is not None
    assert (found.estimate, found.low, found.high) == (pytest.approx(1.5), None, None)
    assert Costs.from_steps({1: 0.03}) is None


def test_lookups_that_find_nothing_may_cost() -> None:
    """A tiny model: its steps take twice what the table says, and nothing is ever proposed."""
    made = Costs.from_steps({1: 0.001, 64: 0.002})
    slices = {("speculating", "1"): (100.0, 0.2)}
    counters = {"num_tokens": 100.0, "num_requests": 0.0}
    rows = [growth(at, 1.0, counters, acceptance=Acceptance(), slices=slices) for at in range(20)]
    assert made is not None
    found = costs_benefit(made, {"a": rows})
    assert found is not None
    assert (found.low, found.high) == (pytest.approx(0.5), pytest.approx(1.0))


def test_shorter_drafts_are_not_better_by_what_is_not_known() -> None:
    """Half of the steps' time is drafting, which the table leaves out: no length is clear."""
    made = Costs.from_steps(TABLE)
    rows, _ = timed_rows(np.random.default_rng(1), 1.0, 0.0, 1.6)
    assert made is not None
    found = benefit_at_k(made, {"a": rows})
    assert found.keys() == {1, 2, 3}
    now = costs_benefit(made, {"a": rows})
    assert now is not None
    assert now.low is not None
    assert now.high is not None
    assert found[3].estimate == pytest.approx(now.estimate, rel=1e-3)
    assert now.low < 1 < now.high
    assert all(each.low is not None and each.low < now.high for each in found.values())

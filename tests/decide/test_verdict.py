from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import Agreement
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR, decide
from outdraft.stats.ratios import Ratio

from .evidences import TOO_FEW, about, between

WIN, LOSS, UNCLEAR = between(1.2, 1.4), between(0.7, 0.9), between(0.9, 1.2)
FINE = Evidence(e2e=WIN, p99=between(1.1, 1.3))


@pytest.mark.parametrize(
    ("interval", "decision"),
    [
        ((1.02, 1.4), SHIP),
        ((1.005, 1.4), INCONCLUSIVE),  # it may be no more than the margin
        ((0.7, 0.98), DONT_SHIP),
        ((0.7, 0.995), INCONCLUSIVE),
        ((0.995, 1.005), INCONCLUSIVE),  # a tie
        ((0.8, 1.3), INCONCLUSIVE),
    ],
)
def test_the_interval_decides(interval: tuple[float, float], decision: str) -> None:
    assert decide(Evidence(e2e=between(*interval)), margin=0.01).decision == decision


def test_a_margin_of_ones_own_and_the_noise_floor_ask_for_more() -> None:
    evidence = Evidence(e2e=between(1.04, 1.2))
    assert decide(evidence).decision == SHIP
    assert decide(evidence, margin=0.05).decision == INCONCLUSIVE
    assert decide(replace(evidence, noise_floor=0.05)).decision == INCONCLUSIVE
    assert decide(replace(evidence, noise_floor=0.03), margin=0.01).decision == SHIP


def test_acceptance_alone_never_decides() -> None:
    loss = Evidence(e2e=LOSS, acceptance=AcceptanceSummary(0.95))
    assert decide(loss).decision == DONT_SHIP
    gain = Evidence(e2e=WIN, acceptance=AcceptanceSummary(0.1))
    assert decide(gain).decision == SHIP


class TestThroughput:
    """Where several requests are kept running, the server must gain too."""

    def crowded(self, low: float, high: float, concurrency: int | None = 4) -> Evidence:
        return replace(FINE, throughput=between(low, high), concurrency=concurrency)

    @pytest.mark.parametrize(
        ("low", "high", "decision"),
        [
            (1.1, 1.4, SHIP),
            (0.99, 1.1, INCONCLUSIVE),  # idle neighbours, not a faster server
            (0.7, 0.8, INCONCLUSIVE),
        ],
    )
    def test_it_decides_too(self, low: float, high: float, decision: str) -> None:
        verdict = decide(self.crowded(low, high))
        assert verdict.decision == decision
        assert any(each.startswith("throughput: ") for each in verdict.reasons) == (
            decision != SHIP
        )

    @pytest.mark.parametrize("concurrency", [1, None])
    def test_one_at_a_time_or_by_the_clock_it_says_nothing_new(
        self, concurrency: int | None
    ) -> None:
        assert decide(self.crowded(0.9, 1.1, concurrency)).decision == SHIP

    def test_where_slots_are_kept_busy_times_are_enough(self) -> None:
        evidence = replace(self.crowded(0.9, 1.1), has_idle_slots=False)
        assert decide(evidence).decision == SHIP

    @pytest.mark.parametrize("e2e", [WIN, UNCLEAR, LOSS])
    def test_where_slots_are_kept_busy_a_clear_loss_is_a_loss(self, e2e: Ratio) -> None:
        evidence = replace(self.crowded(0.6, 0.69), e2e=e2e, has_idle_slots=False)
        verdict = decide(evidence)
        assert verdict.decision == DONT_SHIP
        told = " | ".join(verdict.reasons)
        assert ("throughput: 1.55 times slower" in told) == (e2e is not LOSS)
        assert ("the two differ because" in told) == (e2e is not LOSS)
        part = decide(replace(evidence, by_category={"code": WIN}))
        assert part.decision == DONT_SHIP, "no part is faster where the server is slower"
        alone = decide(replace(evidence, concurrency=1))
        assert alone.decision == decide(replace(FINE, e2e=e2e)).decision

    def test_why_the_two_differ_is_said_only_where_they_do(self) -> None:
        evidence = replace(self.crowded(0.9, 1.25), has_idle_slots=False)
        told = " | ".join(decide(evidence).reasons)
        assert "throughput: " in told
        assert "the two differ" not in told

    def parted(self, pace: Ratio | None, **fields: Any) -> Evidence:
        """Code wins end to end, with `pace` in its time per token; chat loses."""
        given: dict[str, Any] = {
            "by_category": {"code": WIN, "chat": LOSS},
            "tpot_by_part": {} if pace is None else {"category code": pace},
            "has_idle_slots": False,
        }
        return replace(self.crowded(0.86, 0.98), **(given | fields))

    def test_a_part_wins_by_its_own_tokens_and_not_by_a_shorter_wait(self) -> None:
        """As measured with 64 at a time: 0.98 end to end, 0.91 in throughput, and first tokens 2.4
        times as early because the others came less often."""
        for pace in (UNCLEAR, LOSS, TOO_FEW, None):
            evidence = self.parted(pace, e2e=between(0.92, 1.05))
            verdict = decide(evidence)
            assert (verdict.decision, verdict.ship_for) == (DONT_SHIP, ())
            told = " | ".join(verdict.reasons)
            assert "category code is not clearly faster in its time per token" in told
            assert "the two differ because" not in told, "their intervals overlap"
            assert "with 4 at a time the server writes clearly less: that is a loss" in told
        alone = decide(self.parted(None, concurrency=1))
        assert alone.ship_for == ("category code",), "nobody else can be slowed"

    def test_of_a_wait_nothing_is_said_where_all_win(self) -> None:
        verdict = decide(self.parted(None, throughput=WIN, by_category={"code": WIN, "qa": WIN}))
        assert verdict.decision == SHIP
        assert "wait less" not in " | ".join(verdict.reasons)

    def test_parts_that_win_are_named_though_the_whole_writes_less(self) -> None:
        verdict = decide(self.parted(WIN))
        assert (verdict.decision, verdict.ship_for) == (SHIP_FOR, ("category code",))
        assert (verdict.losers, verdict.whole_wins) == (("category chat",), False)
        assert verdict.reasons[-3].startswith("with 4 at a time the server writes clearly less")
        assert verdict.reasons[-2].startswith("the whole does not win: this is for those parts")

    def test_idle_neighbours_flatter_parts_too(self) -> None:
        idle = self.parted(WIN, has_idle_slots=True, throughput=UNCLEAR)
        assert decide(idle).decision == INCONCLUSIVE
        assert decide(replace(idle, e2e=LOSS)).decision == DONT_SHIP
        assert decide(replace(idle, throughput=WIN)).decision == SHIP_FOR

    def test_no_part_is_shipped_for_times_alone(self) -> None:
        evidence = self.parted(WIN, e2e=UNCLEAR, by_category={"code": WIN}, has_idle_slots=True)
        assert decide(replace(evidence, throughput=UNCLEAR)).decision == INCONCLUSIVE


class TestTheWhole:
    """Whether speculation may be on for everything that a server gets."""

    MIXED = replace(
        FINE,
        concurrency=4,
        has_idle_slots=False,
        by_category={"code": WIN, "chat": LOSS},
        tpot_by_part={"category code": WIN},
    )

    @pytest.mark.parametrize(
        ("fields", "wins"),
        [
            ({}, True),
            ({"throughput": UNCLEAR, "total": UNCLEAR, "p99": UNCLEAR}, True),
            ({"e2e": between(1.005, 1.2)}, False),  # it may be no more than the margin
            ({"e2e": UNCLEAR}, False),
            ({"throughput": LOSS}, False),
            ({"total": LOSS}, False),
            ({"p99": LOSS}, False),
            ({"noise_floor": 0.3}, False),
        ],
    )
    def test_it_wins_if_nothing_of_it_loses(self, fields: dict[str, Any], wins: bool) -> None:
        verdict = decide(replace(self.MIXED, **fields))
        if verdict.decision == SHIP_FOR:
            assert verdict.losers == ("category chat",)
        assert verdict.whole_wins == wins

    def test_of_a_verdict_that_ships_for_all_and_of_one_that_ships_nothing(self) -> None:
        assert decide(FINE).whole_wins
        assert not decide(Evidence(e2e=LOSS)).whole_wins
        junk = replace(self.MIXED, texts=Agreement(24, 0, (0,) * 24))
        for floor, decision in ((None, INCONCLUSIVE), (Agreement(16, 16), DONT_SHIP)):
            verdict = decide(replace(junk, text_floor=floor))
            assert verdict.decision == decision
            assert (verdict.ship_for, verdict.losers, verdict.whole_wins) == ((), (), False)


class TestAllSeconds:
    """Typical requests may gain while all of them together take longer."""

    def test_a_loss_of_the_sum_is_no_shipping(self) -> None:
        assert decide(FINE).decision == SHIP
        verdict = decide(replace(FINE, total=LOSS))
        assert verdict.decision == INCONCLUSIVE
        assert any(each.startswith("all requests' seconds together: ") for each in verdict.reasons)
        assert "the sum of their times loses" in verdict.reasons[-1]

    def test_a_sum_that_agrees_is_not_mentioned(self) -> None:
        verdict = decide(replace(FINE, total=FINE.e2e))
        assert verdict.decision == SHIP
        assert not any("seconds together" in each for each in verdict.reasons)


class TestParts:
    def test_one_wins_and_one_loses_though_the_whole_wins(self) -> None:
        evidence = replace(FINE, by_temperature={"0": about(1.9), "0.7-1": about(0.8)})
        verdict = decide(evidence)
        assert (verdict.decision, verdict.ship_for) == (SHIP_FOR, ("temperature 0",))
        told = " | ".join(verdict.reasons)
        assert "temperature 0: 1.90 times faster" in told
        assert "temperature 0.7-1: 1.25 times slower, speedup 0.80" in told

    def test_where_temperatures_lose_categories_are_not_named(self) -> None:
        """Each category is a mix of hot and cold then: it is not the part that wins."""
        verdict = decide(
            replace(
                FINE,
                by_category={"code": WIN, "chat": WIN},
                by_temperature={"0": WIN, "0.7-1": LOSS},
            )
        )
        assert verdict.ship_for == ("temperature 0",)

    def test_a_losing_category(self) -> None:
        verdict = decide(
            replace(FINE, by_category={"code": WIN, "chat": LOSS}, by_temperature={"0": WIN})
        )
        assert verdict.ship_for == ("category code",)

    def test_a_part_wins_and_the_whole_is_not_clear(self) -> None:
        verdict = decide(Evidence(e2e=UNCLEAR, by_category={"code": WIN, "chat": UNCLEAR}))
        assert (verdict.decision, verdict.ship_for) == (SHIP_FOR, ("category code",))

    def test_all_that_is_known_wins(self) -> None:
        verdict = decide(replace(FINE, by_category={"code": WIN, "chat": UNCLEAR, "qa": TOO_FEW}))
        assert (verdict.decision, verdict.ship_for) == (SHIP, ())


class TestTail:
    def test_the_mean_wins_and_the_tail_loses(self) -> None:
        verdict = decide(replace(FINE, p99=between(0.4, 0.6)))
        assert verdict.decision == INCONCLUSIVE
        assert verdict.reasons[1].startswith("P99 end to end: 2.04 times slower, speedup 0.49")
        assert verdict.reasons[-1].startswith("requests gain on average and the tail loses")

    def test_a_tail_that_may_lose_does_not_outweigh_a_proven_gain(self) -> None:
        assert decide(replace(FINE, p99=between(0.5, 1.5))).decision == SHIP

    def test_an_unknown_tail_is_said_to_be(self) -> None:
        verdict = decide(Evidence(e2e=WIN))
        assert verdict.decision == SHIP
        assert verdict.reasons[-1] == "the tail is not known: 240 pairs are too few for a P99"


class TestNothingToDecideOn:
    def test_an_invalid_run(self) -> None:
        verdict = decide(replace(FINE, is_valid=False, problems=("31 of 60 requests failed",)))
        assert verdict.decision == INCONCLUSIVE
        assert verdict.reasons == (
            "the run is invalid and proves nothing",
            "31 of 60 requests failed",
        )

    def test_too_few_blocks(self) -> None:
        verdict = decide(Evidence(e2e=TOO_FEW, more_requests=24))
        assert verdict.decision == INCONCLUSIVE
        assert verdict.reasons[0] == (
            "too little was measured for an interval (3 blocks); "
            "about 24 more requests would make it clear"
        )
        assert "(0 blocks)" in decide(Evidence(e2e=None)).reasons[0]


def test_reasons_have_the_numbers() -> None:
    verdict = decide(
        Evidence(
            e2e=between(0.96, 1.07, num_pairs=132),
            error_rate=0.025,
            more_requests=500,
            problems=("the server refused ignore_eos: sent without",),
        ),
        margin=0.02,
    )
    assert verdict.reasons == (
        "requests end to end: 1.01 times faster, speedup 1.01 [0.96, 1.07], n=132",
        "not clear: the interval is neither beyond nor within 2 % of 1; "
        "about 500 more requests would make it clear",
        "2.5 % of the requests failed and are left out",
        "the server refused ignore_eos: sent without",
        "the tail is not known: 132 pairs are too few for a P99",
    )
    slower = decide(Evidence(e2e=between(0.5, 0.5), p99=about(1))).reasons[0]
    assert "2.00 times slower, speedup 0.50 [0.50, 0.50]" in slower
    tie = decide(Evidence(e2e=between(0.995, 1.004), p99=about(1))).reasons[-1]
    assert tie == "no difference of more than 1 % either way"


def test_it_goes_into_json_and_says_everything() -> None:
    verdict = decide(replace(FINE, by_category={"code": WIN, "chat": LOSS}))
    told = json.loads(json.dumps(asdict(verdict)))
    assert told["decision"] == "SHIP FOR"
    assert told["ship_for"] == ["category code"]
    assert told["reasons"] == list(verdict.reasons)
    assert {"name", "value", "threshold", "state", "advice"} == told["checks"][0].keys()

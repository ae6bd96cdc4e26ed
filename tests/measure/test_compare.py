"""Planted truths are found. The load is simulated (`simulated`): what is tested is the judgement,
the blocks and when they end. `test_compare_http` has runs over the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.heartbeat import Pulse
from outdraft.measure.compare import compare
from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.measure.plateau import is_lead
from outdraft.records import Record
from outdraft.stats.sequential import Look
from outdraft.testing.fake_script import Script
from outdraft.workload.prompt import Message, Prompt
from outdraft.workload.sets import built_in

from .simulated import BASELINE, CANDIDATE, Simulated

OFF = Script(ttft_s=0.02, tpot_s=0.01, prompt_spread=0.3, noise=0.03, seed=1)
ON = replace(OFF, seed=2)
PROMPTS = built_in()
# No two alike and no parts: quicker to judge.
CHAT = [Prompt(f"p{n}", "chat", (Message("user", f"subject {n}"),), 48) for n in range(500)]
LEADS = 6 * 4  # to each arm in five blocks and the warm-up, four at a time
Compared = Callable[..., Comparison]


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    def run(load: Simulated, prompts: list[Any] = CHAT, **settings: Any) -> Comparison:
        monkeypatch.setattr("outdraft.measure.compare.run_load", load)
        monkeypatch.setattr("outdraft.observe.RemoteServer.metrics", lambda server: {})
        options = {name: settings.pop(name) for name in ("sink", "on_look") if name in settings}
        one, other = settings.pop("ends", (BASELINE, CANDIDATE))
        usual = {"max_tokens": 48, "max_requests": 240, "block_size": 12}
        asked = ComparisonSettings(**{**usual, **settings})
        return compare(one, other, prompts, asked, **options)

    return run


def loads(candidate: Script, baseline: Script = OFF, **options: Any) -> Simulated:
    return Simulated({BASELINE.url: baseline, CANDIDATE.url: candidate}, **options)


def decision(outcome: Comparison) -> str:
    assert outcome.verdict is not None
    return outcome.verdict.decision


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [
        (0.8, "DON'T SHIP"),
        (0.97, "DON'T SHIP"),
        (1.0, "INCONCLUSIVE"),
        (1.05, "SHIP"),
        (1.5, "SHIP"),
    ],
)
def test_planted_speedups(compared: Compared, speedup: float, expected: str) -> None:
    outcome = compared(loads(replace(ON, speedup=speedup)))
    assert decision(outcome) == expected
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    low, high = outcome.evidence.e2e.low, outcome.evidence.e2e.high
    # The first token is not sped up: of 20 + 47 x 10 ms only the second part.
    planted = 490 / (20 + 470 / speedup)
    assert (low or 0) < planted < (high or 0)


def test_a_clear_case_ends_early_but_with_one_look(compared: Compared) -> None:
    for speedup, looks, blocks in ((1.5, 4, 5), (0.8, 4, 5), (1.012, 4, 20), (1.5, 1, 20)):
        assert compared(loads(replace(ON, speedup=speedup)), num_looks=looks).num_blocks == blocks


def test_no_difference_at_all_is_a_tie_that_needs_no_more(compared: Compared) -> None:
    outcome = compared(loads(replace(ON, noise=0.001), replace(OFF, noise=0.001)))
    assert outcome.num_blocks == 5
    assert outcome.verdict is not None
    assert outcome.verdict.reasons[1] == "no difference of more than 1 % either way"


def test_a_median_that_wins_and_a_tail_that_loses(compared: Compared) -> None:
    """One request in twenty takes three times as long; all others are 1.3 times as fast."""
    calm = replace(OFF, prompt_spread=0.1)
    split = replace(calm, seed=2, speedup=1.3, tail_share=0.05, tail_factor=3)
    outcome = compared(loads(split, calm), max_requests=480, block_size=24, num_looks=2)
    assert outcome.num_blocks == 20, "an early gain is not enough where the tail can be known"
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    assert (outcome.evidence.e2e.low or 0) > 1.2
    assert outcome.evidence.p99 is not None
    assert (outcome.evidence.p99.high or 9) < 0.8
    assert decision(outcome) == "INCONCLUSIVE"
    assert outcome.verdict is not None
    assert "the tail loses" in " ".join(outcome.verdict.reasons)
    assert {check.name: check.state for check in outcome.verdict.checks}["tail"] == "fail"


def test_a_gain_ends_early_where_the_tail_could_not_be_known_anyhow(compared: Compared) -> None:
    """400 pairs have a P99 at 95 %, but not at the level of a last look."""
    fast = replace(ON, speedup=1.5)
    assert compared(loads(fast), max_requests=400, block_size=20).num_blocks == 5


def test_sixty_cold_and_forty_hot(compared: Compared) -> None:
    """The whole looks fine and the hot part pays for it: only the cold part is to be shipped."""
    mixed = replace(ON, k=4, acceptance={0.0: 0.85, 1.0: 0.2}, round_cost=1.6)
    outcome = compared(
        loads(mixed), PROMPTS, mix=((0.0, 0.6), (1.0, 0.4)), num_looks=1, max_requests=180
    )
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    assert (outcome.evidence.e2e.low or 0) > 1.1, "the aggregate alone would say SHIP"
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "SHIP FOR"
    assert outcome.verdict.ship_for == ("temperature 0",)
    assert outcome.evidence.acceptance is not None
    rates = outcome.evidence.acceptance.by_temperature
    assert rates["0"] > 0.6 > 0.3 > rates["0.7-1"]
    hot = [each for each in outcome.of("candidate") if each.temperature and not each.is_warmup]
    assert len(hot) == 72


class TestBlocks:
    def test_arms_take_turns_with_the_same_requests(self, compared: Compared) -> None:
        load = loads(replace(ON, speedup=1.5))
        compared(load, max_requests=60)
        order = list(dict.fromkeys((each.block, each.arm) for each in load.requests))
        turns = [
            (block, name)
            for block in range(5)
            for name in (("baseline", "candidate"), ("candidate", "baseline"))[block % 2]
        ]
        assert order == [(-1, "baseline"), (-1, "candidate"), *turns]
        of = {
            name: {(r.block, r.index): r.planned for r in load.requests if r.arm == name}
            for name in ("baseline", "candidate")
        }
        assert of["baseline"] == of["candidate"]
        assert len({each.prompt.messages for each in of["baseline"].values()}) == 72 + LEADS

    def test_no_text_begins_like_another(self, compared: Compared) -> None:
        """A server that keeps prefixes must not find one, not even of the other block."""
        load = loads(replace(ON, speedup=1.5))
        compared(load, CHAT[:3], max_requests=60)
        beginnings = [
            each.planned.prompt.messages[0].content.partition("]")[0]
            for each in load.requests
            if each.arm == "baseline"
        ]
        assert len(set(beginnings)) == len(beginnings) == 72 + LEADS

    @pytest.mark.parametrize("other", ["http://one", "http://one/", "http://one/v1"])
    def test_one_server_against_itself_gets_other_marks(
        self, compared: Compared, other: str
    ) -> None:
        load = Simulated({"http://one": OFF, other: OFF})
        outcome = compared(
            load, max_requests=60, ends=(Endpoint("http://one"), Endpoint(other)), num_looks=1
        )
        texts = [each.planned.prompt.messages[0].content for each in load.requests]
        assert len(set(texts)) == len(texts) == 2 * (72 + LEADS)
        unmarked = {(each.block, each.index, each.planned.prompt.id) for each in load.requests}
        assert len(unmarked) == 72 + LEADS, "the same prompts at the same places all the same"
        assert outcome.evidence is not None
        assert outcome.evidence.texts is None, "texts to other prompts are no evidence"
        assert decision(outcome) == "INCONCLUSIVE"

    def test_greedy_texts_are_the_same_with_speculation(self, compared: Compared) -> None:
        outcome = compared(loads(replace(ON, k=4, speedup=1.5)), max_requests=60)
        assert outcome.evidence is not None
        assert outcome.evidence.texts is not None
        assert outcome.evidence.texts.num_compared == 60
        assert outcome.evidence.texts.share == 1

    def test_a_rare_temperature_is_there_in_its_share(self, compared: Compared) -> None:
        """In a block of twelve a share of 3 % would be rounded away."""
        load = loads(replace(ON, speedup=1.5))
        compared(load, PROMPTS, max_requests=60, mix=((0.0, 0.95), (1.0, 0.05)), num_looks=1)
        counted = [each for each in load.requests if not each.is_warmup and each.arm == "baseline"]
        assert len(counted) == 60
        assert sum(each.planned.temperature > 0 for each in counted) == 3


class TestTexts:
    def test_junk_at_twice_the_speed_is_not_shipped(self, compared: Compared) -> None:
        load = loads(replace(ON, speedup=2.0, is_junk=True))
        outcome = compared(load)
        assert decision(outcome) == "DON'T SHIP"
        assert outcome.num_blocks == 5, "more blocks would not change it"
        assert outcome.evidence is not None
        assert outcome.evidence.e2e is not None
        assert (outcome.evidence.e2e.low or 0) > 1.5
        assert outcome.verdict is not None
        assert "0 of 60 greedy texts" in outcome.verdict.reasons[0]
        assert "its own, sent again, 16 of 16" in outcome.verdict.reasons[0]
        again = [each for each in load.requests if each.arm == "baseline again"]
        counted = [each for each in load.requests if not each.is_warmup]
        first = [each for each in counted if each.arm == "baseline" and each.block in (0, 1)]
        assert [each.planned for each in again] == [each.planned for each in first[:16]]

    def test_the_same_text_at_twice_the_speed_is(self, compared: Compared) -> None:
        load = loads(replace(ON, speedup=2.0))
        outcome = compared(load)
        assert decision(outcome) == "SHIP"
        assert len(load.requests) == 2 * (12 * 6 + LEADS), "where all agree, nothing is asked again"

    def test_near_ties_of_both_are_not_blamed(self, compared: Compared) -> None:
        often = {"near_ties": 0.1, "speedup": 2.0}
        outcome = compared(loads(replace(ON, **often), replace(OFF, near_ties=0.1)))
        assert decision(outcome) == "SHIP"
        assert outcome.evidence is not None
        texts, floor = outcome.evidence.texts, outcome.evidence.text_floor
        assert texts is not None
        assert floor is not None
        assert 0.6 < texts.share < 1
        assert floor.num_compared == 16

    def test_a_load_of_one_is_repeated_in_a_batch(self, compared: Compared) -> None:
        load = loads(replace(ON, speedup=2.0, is_junk=True))
        seen: list[int | None] = []

        def watched(*args: Any, concurrency: int | None = None, **rest: Any) -> Any:
            seen.append(concurrency)
            return load(*args, concurrency=concurrency, **rest)

        for concurrency, other in ((4, 1), (1, 4)):
            seen.clear()
            compared(watched, concurrency=concurrency)  # type: ignore[arg-type]
            assert set(seen[:-1]) == {concurrency}
            assert seen[-1] == other

    def test_hot_requests_are_not_asked_again(self, compared: Compared) -> None:
        load = loads(replace(ON, speedup=2.0, is_junk=True))
        outcome = compared(load, mix=((0.0, 0.5), (1.0, 0.5)))
        assert decision(outcome) == "DON'T SHIP"
        again = [each for each in load.requests if each.arm == "baseline again"]
        assert [each.planned.temperature for each in again] == [0.0] * 16

    def test_only_hot_requests_leave_texts_unknown(self, compared: Compared) -> None:
        outcome = compared(loads(replace(ON, speedup=2.0, is_junk=True)), mix=((1.0, 1.0),))
        assert decision(outcome) == "SHIP"
        assert outcome.verdict is not None
        assert any("texts were not compared" in each for each in outcome.verdict.reasons)

    def test_texts_that_differ_by_design(self, compared: Compared) -> None:
        load = loads(replace(ON, speedup=2.0, is_junk=True))
        outcome = compared(load, lossy=True)
        assert decision(outcome) == "SHIP"
        assert outcome.verdict is not None
        assert any("differ by design" in each for each in outcome.verdict.reasons)
        assert not outcome.of("baseline again")

    def test_a_baseline_that_does_not_answer_again(self, compared: Compared) -> None:
        """No floor, so nothing is clear, and nothing ships either."""
        fast = replace(ON, speedup=2.0, is_junk=True)
        outcome = compared(loads(fast, failing=range(144, 160)), max_requests=60, num_looks=1)
        assert decision(outcome) == "INCONCLUSIVE"
        assert outcome.verdict is not None
        assert "may write other texts: 0 of 60" in outcome.verdict.reasons[0]
        assert outcome.evidence is not None
        assert outcome.evidence.error_rate == 0, "what is asked again counts for nothing else"

    def test_stopped_while_it_is_asked_again(self, compared: Compared) -> None:
        fast = replace(ON, speedup=1.012, is_junk=True)
        outcome = compared(loads(fast, stops_at=144 + 3))
        assert outcome.num_blocks == 5
        assert decision(outcome) == "DON'T SHIP", "three texts and none of sixty are clear enough"
        assert any("stopped while the baseline" in each for each in outcome.problems)


class TestFailures:
    def test_a_few_are_left_out_and_told(self, compared: Compared) -> None:
        """One request in thirty fails: one in a block is many of it, and few of the whole."""
        outcome = compared(loads(replace(ON, speedup=1.5), failing=range(30, 144, 30)))
        assert decision(outcome) == "SHIP"
        assert outcome.evidence is not None
        assert outcome.evidence.error_rate == pytest.approx(4 / 120)
        assert outcome.verdict is not None
        told = " | ".join(outcome.verdict.reasons)
        assert "3.3 % of the requests failed and are left out" in told
        assert "baseline: 3 of 60 requests failed (5.0%): http 503 × 3" in told
        assert "candidate: 1 of 60 requests failed (1.7%): http 503 × 1" in told

    def test_many_make_it_invalid(self, compared: Compared) -> None:
        outcome = compared(
            loads(replace(ON, speedup=1.5), failing=range(0, 9999, 10)), max_requests=60
        )
        assert decision(outcome) == "INCONCLUSIVE"
        assert outcome.evidence is not None
        assert not outcome.evidence.is_valid
        assert outcome.verdict is not None
        told = " | ".join(outcome.verdict.reasons)
        assert "the run is invalid" in told
        assert "baseline: 7 of 60 requests failed (11.7%): http 503 × 7; at most 5% may" in told

    def test_nobody_answers(self, compared: Compared) -> None:
        with pytest.raises(OutdraftError, match=rf"baseline at {BASELINE.url}: every request of "):
            compared(loads(ON, failing=range(9999)), max_requests=60)

    def test_an_arm_that_goes_silent_is_given_up(self, compared: Compared) -> None:
        """24 of warm-up, a block of both, then one in two blocks of the candidate fails."""
        dead = [*range(36, 48), *range(48, 60), *range(72, 84), *range(84, 999)]
        outcome = compared(loads(ON, failing=dead), max_requests=120)
        assert decision(outcome) == "INCONCLUSIVE"
        assert outcome.num_blocks == 2
        assert outcome.verdict is not None
        told = " | ".join(outcome.verdict.reasons)
        assert "candidate answered nothing in 2 blocks (http 503" in told

    def test_an_arm_that_dies_at_the_end_ships_nothing(self, compared: Compared) -> None:
        """Two blocks of many are few failures, and all there is of it from now on."""
        dead = [
            each
            for block in range(38, 99)
            for each in range(24 + 24 * block + 12 * (block % 2 == 0), 24 + 24 * (block + 1))
        ]
        calm = {"speedup": 1.5, "noise": 0.02}
        outcome = compared(loads(replace(ON, **calm), failing=dead), max_requests=960, num_looks=1)
        assert outcome.num_blocks == 40
        assert outcome.evidence is not None
        assert outcome.evidence.error_rate < 0.05
        assert not outcome.evidence.is_valid
        assert decision(outcome) == "INCONCLUSIVE"

    def test_a_client_that_was_not_fit_to_measure(self, compared: Compared) -> None:
        stalled = Pulse(10**9, 4 * 10**8, 5 * 10**8, 3, 0, 0, 10**8)
        outcome = compared(loads(replace(ON, speedup=1.5), pulse=stalled), max_requests=60)
        assert decision(outcome) == "INCONCLUSIVE"
        assert outcome.num_invalid == 5
        assert any("was blocked for 50.0%" in each for each in outcome.problems)

    def test_a_clock_that_was_set_is_told_and_does_no_harm(self, compared: Compared) -> None:
        stepped = Pulse(10**9, 0, 0, 0, 3_600 * 10**9, 0, 10**8)
        outcome = compared(loads(replace(ON, speedup=1.5), pulse=stepped), max_requests=60)
        assert decision(outcome) == "SHIP"
        assert outcome.verdict is not None
        assert any("set by +3600.000 s" in each for each in outcome.verdict.reasons)


class TestStopped:
    def test_in_the_middle_what_there_is_is_judged(self, compared: Compared) -> None:
        seen: list[Record] = []
        looks: list[Look] = []
        outcome = compared(
            loads(replace(ON, speedup=1.012), stops_at=24 * 9 + 5),
            sink=seen.append,
            on_look=lambda outcome, look: looks.append(look),
        )
        assert seen == outcome.records
        assert sum(not is_lead(each) for each in seen) == 24 * 9 + 5 + 8
        assert sum(map(is_lead, seen)) == 4 * (2 * 8 + 1)
        assert outcome.num_blocks == 9
        assert outcome.verdict is not None
        assert "stopped in block 9 of 20" in outcome.verdict.reasons
        assert outcome.evidence is not None
        assert outcome.evidence.e2e is not None
        assert outcome.evidence.e2e.num_pairs == 96
        # The next look was taken early: no chance to be wrong is spent twice.
        assert [look.num_blocks for look in looks] == [5, 10]

    def test_while_it_warms_up_nothing_more_is_sent(self, compared: Compared) -> None:
        outcome = compared(loads(ON, stops_at=5))
        assert len(outcome.records) == 4 + 5
        assert outcome.verdict is None

    def test_in_the_first_block(self, compared: Compared) -> None:
        outcome = compared(loads(ON, stops_at=30))
        assert decision(outcome) == "INCONCLUSIVE"
        places = [each.index for each in outcome.records if each.block >= 0]
        assert places == [-4, -3, -2, -1, 0, 1, 2, 3, 4, 5]
        assert len(outcome.records) == 2 * (4 + 12) + 10


def test_what_rounds_cost_is_found_and_explains_the_verdict(compared: Compared) -> None:
    """Planted: rounds of 4 cost 2.4 plain steps, a draft token is accepted with chance 0.5."""
    script = replace(ON, k=4, acceptance=0.5, round_cost=2.4)
    outcome = compared(loads(script), max_requests=120, max_tokens=200)
    assert decision(outcome) == "DON'T SHIP"
    assert outcome.evidence is not None
    costs = outcome.evidence.costs
    assert costs is not None
    assert costs.k == pytest.approx(4, rel=0.03)
    assert costs.steps == pytest.approx(2.4, rel=0.05)
    assert outcome.evidence.load == "concurrency 4"
    assert costs.break_even_rate == pytest.approx(1.4 / 4, rel=0.1)
    assert outcome.verdict is not None
    states = {check.name: check.state for check in outcome.verdict.checks}
    assert states["break_even at concurrency 4"] == "fail"
    assert states["ceiling"] == "ok"

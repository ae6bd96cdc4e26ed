from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.acceptance import Acceptance
from outdraft.decide.verdict import Verdict
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Journal
from outdraft.tune.judging import judge
from outdraft.tune.outcome import acceptance_results, load_result
from outdraft.tune.race import Standing
from outdraft.tune.results import FROM_ANSWERS, FROM_COUNTERS, PREDICTED, PROFILED
from outdraft.tune.rules import Objective, Rules, SearchSettings

from .test_race import block

ARM = Speculation("ngram", k=4)
LOAD = Load(concurrency=1)


def test_every_part_of_the_acceptance_has_its_count(tmp_path: Path) -> None:
    told = Acceptance(10, 40, 20, accepted_per_position=[8, 6, 4, 2])
    plain = block(ARM, 0)
    kinds = (("chat", 0.0), ("chat", 0.0), ("code", 0.8))
    records = tuple(
        replace(each, category=category, temperature=heat, acceptance=told)
        for each, (category, heat) in zip(plain.records[:3], kinds, strict=True)
    )
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.add(replace(plain, records=records))
        (found,) = acceptance_results([ARM], [LOAD], journal)
    assert found.name == "ngram"
    assert found.num_requests == 3
    assert found.num_by_category == {"chat": 2, "code": 1}
    assert list(found.num_by_temperature.values()) == [2, 1]
    assert found.num_by_temperature.keys() == found.by_temperature.keys()
    assert found.source == FROM_ANSWERS


def test_a_server_that_only_counts_is_named_as_the_source(tmp_path: Path) -> None:
    """As vLLM before 0.29: its counters are those of a block."""
    counted = Acceptance(10, 40, 20, accepted_per_position=[8, 6, 4, 2])
    settings = SearchSettings((ARM,), (LOAD,), Rules(Objective("e2e")), 1e6)
    plain = block(ARM, 0)
    silent = tuple(replace(each, acceptance=None) for each in plain.records)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.add(replace(plain, records=silent, counted=counted))
        off, arm = load_result(settings, LOAD, Standing(), journal).arms
        (found,) = acceptance_results([ARM], [LOAD], journal)
    assert (off.acceptance_source, arm.acceptance_source) == ("", FROM_COUNTERS)
    assert arm.acceptance_rate == pytest.approx(0.5)
    assert (found.source, found.rate) == (FROM_COUNTERS, pytest.approx(0.5))
    assert found.per_position == pytest.approx((0.8, 0.6, 0.4, 0.2))
    assert (found.by_category, found.by_temperature) == ({}, {})


def test_goodput_is_over_the_time_of_the_arms_own_blocks(tmp_path: Path) -> None:
    """Two blocks of eight requests, of which all but one take less than 1.07 s; a minute lies
    between them, in which others have the machine."""
    first, later = block(ARM, 0), block(ARM, 0)
    later_ns = 60 * 10**9
    records = tuple(
        replace(each, block=1, **{name: (getattr(each, name) or 0) + later_ns
                for name in ("scheduled_ns", "sent_ns", "first_ns", "last_ns")})
        for each in later.records
    )  # fmt: skip
    settings = SearchSettings((ARM,), (LOAD,), Rules(Objective("goodput", {"e2e": 1069.0})), 1e6)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.add(first)
        journal.add(replace(later, block=1, records=records))
        _, arm = load_result(settings, LOAD, Standing(), journal).arms
    assert arm.goodput_per_s == pytest.approx(7 / 1.07)
    assert arm.tokens_per_s == pytest.approx(8 * 50 / 1.07)
    assert (arm.num_requests, arm.num_errors) == (16, 0)


def test_an_arm_that_ran_its_first_blocks_alone_is_not_called_predicted(tmp_path: Path) -> None:
    """Its cell has a measurement: "predicted: 15 others …" was said of it."""
    other = replace(ARM, k=5)
    settings = SearchSettings((ARM, other), (LOAD,), Rules(Objective()), 1e6)
    standing = Standing(predicted={name_of(ARM): 1.2, name_of(other): 1.3})
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for arm in (OFF, ARM):
            journal.add(block(arm, 0))
        _, ran, hoped = load_result(settings, LOAD, standing, journal).arms
        _, unknown, _ = load_result(settings, LOAD, Standing(), journal).arms
    assert ran.measured is not None
    assert (ran.state, ran.reason) == (
        PROFILED, "first blocks only: 1 other was predicted faster"
    )  # fmt: skip
    assert (hoped.state, hoped.reason) == (PREDICTED, "0 others were predicted faster")
    assert (unknown.state, unknown.reason) == (
        PROFILED, "first blocks only: the run ended before more"
    )  # fmt: skip
    assert replace(ran, state=PREDICTED).fate == PROFILED, "as results of before have it"


def test_the_judged_arm_has_the_figures_of_the_final_and_others_share_the_error(
    tmp_path: Path,
) -> None:
    """It raced at twice the speed, and in the final it was half as good."""
    other = replace(ARM, k=5)
    settings = SearchSettings((ARM, other), (LOAD,), Rules(Objective()), 1e6)
    standing = Standing(
        best=ARM, finalists=(ARM, other), verdict=Verdict("SHIP", (), (), ()),
        measured={name_of(ARM): Ratio(2.0, None, None, 0.95, 8, 1)},
    )  # fmt: skip
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for number in range(5):
            for arm, speed in ((OFF, 1.0), (ARM, 2.0), (other, 1.8)):
                journal.add(block(arm, number, speed))
            for arm, speed in ((OFF, 1.0), (ARM, 1.5)):
                final = block(arm, number, speed)
                journal.add(replace(final, load=LOAD.in_part("final", name_of(ARM)).name))
        off, best, raced = load_result(settings, LOAD, standing, journal).arms
    assert best.measured is not None
    assert raced.measured is not None
    assert best.measured.estimate == pytest.approx(1.5)
    assert (best.measured.level, raced.measured.level) == (0.95, 0.975)
    assert raced.measured.estimate == pytest.approx(1.8)
    assert best.reason == "chosen at 2.00x in the race, then measured anew"
    assert best.raced == standing.measured[name_of(ARM)]
    assert raced.raced is None
    assert off.num_requests == best.num_requests == 40


def test_every_figure_of_the_judged_arm_is_of_what_its_interval_is_of(tmp_path: Path) -> None:
    """Off's first block was left out. The arm had 2,560 requests beside an interval of 2,304, and
    1,093 of 2,304 texts that are off's beside 1,213 of 2,560."""
    rules, final = Rules(Objective()), LOAD.in_part("final", name_of(ARM)).name
    settings = SearchSettings((ARM,), (LOAD,), rules, 1e6)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for number in range(6):
            for arm, speed in ((OFF, 1.0), (ARM, 1.5)):
                each = with_texts(block(arm, number, speed))
                counted = Acceptance(10, 40, 10 * number, accepted_per_position=[10, 10, 10, 10])
                if number < 2:
                    journal.add(each)
                unfit = ("the client was busy",) if arm.is_off and number == 0 else ()
                has_counts = None if arm.is_off else counted
                journal.add(replace(each, load=final, problems=unfit, counted=has_counts))
        raced, judged = (
            {name_of(arm): journal.of(load, name_of(arm)) for arm in (OFF, ARM)}
            for load in (LOAD.name, final)
        )
        judgement = judge(ARM, judged, raced, rules)
        tail = Ratio(0.64, 0.53, 0.78, 0.994, 2304, 9)
        evidence = replace(judgement.evidence, p99=tail)
        standing = Standing(best=ARM, evidence=evidence, verdict=judgement.verdict)
        result = load_result(settings, LOAD, standing, journal)
    off, best = result.arms
    assert best.measured is not None
    counts = [best.measured.num_pairs, off.num_requests, best.num_requests]
    assert counts + [len(arm.e2e_ms) for arm in (off, best)] == [5 * 8] * 5
    assert off.tokens_per_s == pytest.approx(best.tokens_per_s / 1.5 if best.tokens_per_s else 0)
    assert judgement.evidence.acceptance is not None
    assert best.acceptance_rate == pytest.approx(judgement.evidence.acceptance.rate)
    assert best.acceptance_rate == pytest.approx((1 + 2 + 3 + 4 + 5) / 20)
    texts = judgement.evidence.texts
    assert best.texts == texts
    assert texts is not None
    assert texts.num_compared == 7 * 8, "of the race too"
    assert best.ratios["p99"] == tail, "at the verdict's level: results.json had [0.57, 0.72]"
    assert best.ratios["e2e"] == best.measured == judgement.evidence.e2e


def with_texts(made: Block) -> Block:
    """Those of off in half of the requests."""
    records = tuple(
        replace(each, text=f"{made.arm if each.index % 2 else 'same'} {each.index}")
        for each in made.records
    )
    return replace(made, records=records)

"""What is said of the time before anything is measured, and while it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.durations import parse_duration
from outdraft.speculation import Speculation
from outdraft.tune.arm import FINAL, Load, by_proposer
from outdraft.tune.journal import AnswerTime, Block, Journal, Start
from outdraft.tune.needs import Needs, measured_pace, round_up, time_words
from outdraft.tune.pace import Pace, guess_pace
from outdraft.tune.race import Standing
from outdraft.tune.ranking import by_rank, rank_proposers
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.time_told import TimeTold, resumed_words
from outdraft.workload.plan import Blocks, make_blocks
from outdraft.workload.sets import built_in

from .planted import arms_of

ONE, FOUR = Load(concurrency=1), Load(concurrency=4)
PARTS = {each.name: each for load in (ONE, FOUR) for each in (load, load.in_part(FINAL))}
QUANTIZED = tuple(
    replace(arm, quantization=each)
    for arm in arms_of(("draft_model", "eagle"), range(2, 5))
    for each in ("none", "int8")
)
ARMS = (*arms_of(("ngram", "suffix"), range(2, 5)), *QUANTIZED)
PACE = Pace(7.0, {"concurrency 1": 5.0, "concurrency 1, final": 2.5, "concurrency 4": 5.0})


def settings_of(budget_s: float, *, shares: bool = True, loads: tuple[Load, ...] = (ONE, FOUR)) -> (
    SearchSettings
):  # fmt: skip
    return SearchSettings(ARMS, loads, Rules(Objective()), budget_s, {"concurrency 4": 1},
                          keeps_engines=True, shares_process=shares, pace=PACE)  # fmt: skip


def blocks_of(size: int, max_tokens: int = 64) -> Blocks:
    prompts = list(built_in())[:20]
    return make_blocks(prompts, size=size, count=2, mix=((0, 1),), seed=0, max_tokens=max_tokens)


def test_a_guess_goes_by_parameters_tokens_and_requests_at_a_time() -> None:
    def guess(num_parameters: int | None, *, is_gpu: bool = False, tokens: int = 64) -> Pace:
        blocks = dict.fromkeys(PARTS, blocks_of(4, tokens))
        return guess_pace(PARTS, blocks, num_parameters, 6.0, is_gpu=is_gpu, answer_times={})

    small = guess(134_515_008)
    assert 5 < small.block_s["concurrency 1"] < 15, "SmolLM2 on two cores: 4 answers of 64 tokens"
    assert small.block_s["concurrency 4"] < small.block_s["concurrency 1"]
    assert guess(8 << 30).block_s["concurrency 1"] > 50 * small.block_s["concurrency 1"]
    longer = guess(134_515_008, tokens=128).block_s["concurrency 1"]
    assert longer == pytest.approx(2 * small.block_s["concurrency 1"])
    assert guess(8 << 30, is_gpu=True).block_s["concurrency 1"] < 10
    assert guess(None) == Pace(6.0, {})


def test_what_was_measured_is_no_guess() -> None:
    answers = {"concurrency 1": AnswerTime("concurrency 1", 3.0, 20.0)}
    rate = Load(rate=2.0)
    loads = {"concurrency 1": ONE, "concurrency 1, final": ONE.in_part(FINAL), rate.name: rate}
    blocks = {"concurrency 1": blocks_of(4), "concurrency 1, final": blocks_of(2),
              rate.name: blocks_of(40)}  # fmt: skip
    pace = guess_pace(loads, blocks, None, 0.0, is_gpu=True, answer_times=answers)
    assert pace.block_s == {
        "concurrency 1": 12.0, "concurrency 1, final": 6.0, "2 requests/s": 25.0
    }  # fmt: skip


def test_what_a_search_needs_at_least() -> None:
    needs = Needs(settings_of(580), PACE)
    assert needs.num_engines == 7
    # A block of an arm takes three quarters of off's time.
    profile_s, finals_s = (2 + 1) * (1 + 6 * 0.75) * 5, 10 * 1.75 * (2.5 + 5)
    assert needs.least_s == pytest.approx(7 * 7 + profile_s + finals_s)
    many = Needs(settings_of(580, shares=False), PACE)
    assert many.num_engines == 13, "a short draft of each proposer is a process more"
    visits = replace(settings_of(580, shares=False), keeps_engines=False)
    assert Needs(visits, PACE).starts_s == pytest.approx((13 + 5) * 7)


def test_enough_time_is_said_in_a_line() -> None:
    assert time_words(Needs(settings_of(580), PACE)) == (
        "time: 7 engines to start, 2 loads to judge: about 4m30s at least, of --budget 9m40s"
    )


@pytest.mark.parametrize(
    ("budget", "flags", "would_do"),
    [
        ("4m10s", "--draft-quantization int8", "4m"),
        ("2m45s", "--draft-quantization int8 --concurrency 1", "2m"),
        ("1m", "--draft-quantization int8 --concurrency 1 --methods eagle", "1m30s"),
    ],
)
def test_too_little_time_is_said_with_what_to_leave_out(
    budget: str, flags: str, would_do: str
) -> None:
    settings = settings_of(parse_duration(budget, option="--budget"))
    assert time_words(Needs(settings, PACE)) == (
        "time: 7 engines to start, 2 loads to judge: about 4m30s at least, more than "
        f"--budget {budget}: some of it may be left out; about {would_do} with {flags}"
    )


def test_engines_of_others_have_fewer_processes_with_one_draft_length() -> None:
    words = time_words(Needs(settings_of(150, shares=False), PACE))
    assert "--draft-quantization int8 --concurrency 1 --k 3" in words
    assert "--methods" not in words


def test_the_pace_is_that_of_the_journal_where_it_has_one(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        settings = settings_of(580)
        assert measured_pace(settings, journal) == PACE
        journal.add(Start("concurrency 1", "eagle head k=4", 14.0))
        assert measured_pace(settings, journal) == Pace(
            14.0, {name: 2 * each for name, each in PACE.block_s.items()}
        ), "a machine that starts engines slowly is slow"
        journal.add(Block("concurrency 1", "off", 0, 15.0, (), start_s=0.1))
        pace = measured_pace(settings, journal)
        assert pace.block_s["concurrency 1"] == pytest.approx(14.9)
        assert pace.block_s["concurrency 4"] == pytest.approx(14.9), "three times the guess too"
        journal.add(Block("concurrency 1, final of eagle head k=4", "off", 0, 6.0, ()))
        assert measured_pace(settings, journal).block_s["concurrency 1, final"] == 6.0


def test_that_time_will_not_do_is_said_as_soon_as_it_shows(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        words, told = TimeTold(settings_of(580), journal).first()
        assert words.endswith("about 4m30s at least, of --budget 9m40s")
        assert told.again()[0] == ""
        journal.add(Start("concurrency 1", "eagle head k=4", 21.0))
        words, told = told.again()
        assert words.startswith("time at this pace: 7 engines to start, 2 loads to judge: about 1")
        assert "more than --budget 9m40s" in words
        assert told.again()[0] == "", "once"
        journal.add(Block("concurrency 1", "off", 0, 16.0, ()))
        words, told = told.again()
        assert words == "", "it is no worse than was said"


def test_what_is_continued_is_counted(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.started_at = "2026-07-01T12:34:56+00:00"
        for number in range(14):
            journal.add(Block("concurrency 1", "off", number, 9.0, ()))
        assert resumed_words(journal, Path("tune-out"), 580) == (
            "going on with 14 blocks from 2026-07-01 12:34 UTC in tune-out; 2m6s of 9m40s are spent"
        )


def test_proposers_with_a_draft_go_first_one_of_every_method() -> None:
    ranked = rank_proposers(ARMS, ())
    assert ranked == (
        "eagle head int8", "draft_model small int8", "suffix", "ngram",
        "eagle head", "draft_model small",
    )  # fmt: skip
    assert set(ranked) == set(by_proposer(ARMS))
    predicted = {"ngram k=3": 1.9, "eagle head k=4": 1.5, "suffix k=2": 1.2}
    by_load = rank_proposers(ARMS, [Standing(), Standing(predicted=predicted)])
    assert by_load[:3] == ("ngram", "eagle head", "suffix")
    arms = [Speculation("off"), Speculation("ngram", k=3), Speculation("suffix", k=2)]
    assert by_rank(arms, ranked) == [arms[2], arms[1], arms[0]]


@pytest.mark.parametrize(("seconds", "rounded"), [(1, 30), (91, 120), (301, 330), (601, 660)])
def test_budgets_are_easy_to_write(seconds: float, rounded: float) -> None:
    assert round_up(seconds) == rounded

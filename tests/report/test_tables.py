"""What people paste. One table in full: its form is what it is for."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import Agreement
from outdraft.decide.verdict import decide
from outdraft.measure.summary import QuantileEstimate, Summary
from outdraft.report.numbers import acceptance_cell
from outdraft.report.tables import (
    bench_table,
    best_line,
    compare_table,
    decision_text,
    load_lines,
    tune_table,
)
from outdraft.stats.ratios import Ratio
from outdraft.tune.results import (
    BEST,
    DROPPED,
    FROM_ANSWERS,
    FROM_COUNTERS,
    PREDICTED,
    RACED,
    ArmResult,
    LoadResult,
    Results,
)
from tests.report.sample_results import sample_results


def quantiles(*values: float) -> tuple[QuantileEstimate, ...]:
    p50, p95, p99 = values
    return (
        QuantileEstimate(0.5, p50, p50 * 0.9, p50 * 1.1),
        QuantileEstimate(0.95, p95, p95 * 0.9, p95 * 1.1),
        QuantileEstimate(0.99, p99),
    )


SUMMARY = Summary(
    num_requests=64,
    num_errors=2,
    duration_s=12.34,
    ttft=quantiles(20, 50, 60),
    tpot=quantiles(5, 8, 9.5),
    e2e=quantiles(300, 400, 1234),
    requests_per_s=5.02,
    tokens_per_s=250.0,
    goodput_per_s=4.5,
    mean_output_tokens=48.0,
    acceptance=AcceptanceSummary(
        rate=0.71,
        length=2.9,
        p10=0.4,
        p50=0.7,
        p90=0.9,
        num_requests=62,
        per_position=(0.9, 0.6),
        by_category={"chat": 0.5, "code": 0.8},
        by_temperature={"0": 0.7},
    ),
)
BENCH = """\
                         P50             P95   P99
TTFT ms    20.0 [18.0, 22.0]  50.0 [45.0, 55.0]  too few
TPOT ms       5.0 [4.5, 5.5]     8.0 [7.2, 8.8]  too few
e2e ms        300 [270, 330]     400 [360, 440]  too few

64 requests in 12.3 s, 2 failed · 5.02 requests/s · 250.0 tokens/s
goodput 4.50 requests/s within the SLO
62 requests are too few for a P99: it needs 368

acceptance rate 0.71, length 2.90; over requests P10 0.40, P50 0.70, P90 0.90 (n=62)
  by position:    0.90  0.60
  by category:    chat 0.50  code 0.80
  by temperature: 0 0.70

server: KV cache in use at most 25 %, on average 20 %, 3 preemptions"""


def squeezed(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def between(low: float, high: float) -> Ratio:
    return Ratio(math.sqrt(low * high), low, high, 0.95, 240, 20)


def test_bench_in_full() -> None:
    metrics = {
        "kv_cache_usage_max": 0.25,
        "kv_cache_usage_mean": 0.2,
        "vllm:num_preemptions_total": 3.0,
        "other": 1.0,
    }
    table = bench_table(SUMMARY, metrics)
    assert squeezed(table) == squeezed(BENCH)
    assert len({len(line) for line in table.splitlines()[:4]}) == 1, "columns line up"


def test_a_p99_of_few_requests_is_no_figure() -> None:
    """Of 64 it would be the slowest; with an interval it is one."""
    known = (*quantiles(300, 400, 1234)[:2], QuantileEstimate(0.99, 1234, 1100, 1300))
    assert "1,234 [1,100, 1,300]" in bench_table(replace(SUMMARY, e2e=known), {})
    table = bench_table(SUMMARY, {})
    assert "1,234" not in table
    assert "62 requests are too few for a P99: it needs 368" in table


def test_an_acceptance_says_how_often_there_is_a_draft() -> None:
    rare = AcceptanceSummary(0.71, length=3.0, share_drafted=0.23, num_requests=9)
    said = "acceptance rate 0.71, drafts in 23 % of steps, length 3.00"
    assert said in bench_table(replace(SUMMARY, acceptance=rare), {})
    compared = Evidence(e2e=None, acceptance=rare)
    said = "acceptance rate: 0.71, drafts in 23 % of steps"
    assert said in compare_table(compared, decide(compared))
    assert acceptance_cell(0.71, 0.23) == "0.71 in 23 %"
    assert acceptance_cell(0.71, 0.97) == acceptance_cell(0.71, None) == "0.71"


def test_acceptance_that_only_the_server_counted() -> None:
    counted = AcceptanceSummary(rate=0.5, length=2.0, per_position=(0.6, 0.4))
    lines = bench_table(replace(SUMMARY, acceptance=counted), {}).splitlines()
    (line,) = [each for each in lines if each.startswith("acceptance")]
    assert line.startswith("acceptance rate 0.50, length 2.00, by the server's counters")
    assert not any("by category" in line for line in lines)


def test_bench_without_what_was_not_measured() -> None:
    bare = replace(SUMMARY, ttft=(), tpot=(), e2e=(), goodput_per_s=None, acceptance=None)
    table = bench_table(bare, {})
    for word in ("goodput", "acceptance", "server:"):
        assert word not in table
    assert "64 requests" in table


def test_compare_has_ratios_verdict_reasons_and_checks() -> None:
    few = Ratio(1.1, None, None, 0.95, 20, 4)
    evidence = Evidence(
        e2e=between(1.1, 1.3),
        ttft=between(0.95, 1.05),
        by_category={"code": between(1.4, 1.6), "qa": few},
        by_temperature={"0": between(1.2, 1.4), "0.7-1": between(0.7, 0.8)},
        acceptance=AcceptanceSummary(0.4),
        texts=Agreement(50, 49, (12,)),
    )
    verdict = decide(evidence)
    lines = compare_table(evidence, verdict).splitlines()
    assert lines[1].split() == ["e2e", "mean", "1.196", "[1.100,", "1.300]", "240"]
    hot = ["temperature", "0.7-1", "0.748", "[0.700,", "0.800]", "240"]
    assert hot in [line.split() for line in lines]
    assert not any("qa" in line for line in lines), "a part that cannot be judged is left out"
    assert "SHIP FOR temperature 0" in lines
    assert all(f"  - {reason}" in lines for reason in verdict.reasons)
    assert sum("49 of 50 greedy texts are the baseline's" in line for line in lines) == 1
    assert "acceptance rate: 0.40" in lines
    assert any(line.startswith("  fail acceptance 0.4 (") for line in lines)
    assert not any(" ok " in line for line in lines)


def test_the_whole_is_shown_though_it_has_no_interval() -> None:
    evidence = Evidence(e2e=Ratio(1.1, None, None, 0.95, 20, 4))
    table = compare_table(evidence, decide(evidence))
    assert "too few blocks" in table
    assert "INCONCLUSIVE" in table


def test_nothing_measured() -> None:
    evidence = Evidence(e2e=None, is_valid=False, problems=("no answer",))
    verdict = decide(evidence)
    assert decision_text(verdict) == "INCONCLUSIVE"
    assert decision_text(None) == "INCONCLUSIVE"
    assert "  - no answer" in compare_table(evidence, verdict)


def test_a_server_that_counts_no_rounds_has_no_acceptance_length() -> None:
    """llama.cpp tells drafted and accepted tokens, not how many rounds they came in."""
    assert SUMMARY.acceptance is not None
    unknown = replace(SUMMARY, acceptance=replace(SUMMARY.acceptance, length=None))
    assert "length unknown" in bench_table(unknown, {})


def without_measurement(results: Results) -> Results:
    """As when the budget ended before the arm that leads had run."""
    loads = tuple(
        replace(load, arms=tuple(replace(arm, measured=None) for arm in load.arms), verdict=None)
        for load in results.loads
    )
    return replace(results, loads=loads)


def test_the_last_line() -> None:
    results = sample_results()
    assert " over off at 4 requests at a time · acceptance 0." in best_line(results)
    line = best_line(without_measurement(results))
    assert "x predicted only · " in line
    assert "over off" not in line
    over = "the time was over before anything was compared: leave it off"
    assert line.endswith(f"INCONCLUSIVE · {over}")
    kept = replace(results, settings={**results.settings, "keep_memory": True})
    assert best_line(kept).endswith("· answers of earlier requests were remembered (--keep-memory)")


def from_source(results: Results, source: str, *, only: str = "") -> Results:
    """With the acceptance of all arms, or of one, from there; of the others from each answer."""

    def arms(load: LoadResult) -> tuple[ArmResult, ...]:
        told = [each for each in load.arms if each.acceptance_rate is not None]
        return tuple(
            replace(each, acceptance_source=source if only in ("", each.name) else FROM_ANSWERS)
            if each in told
            else each
            for each in load.arms
        )

    return replace(results, loads=tuple(replace(each, arms=arms(each)) for each in results.loads))


def test_the_last_lines_say_where_the_acceptance_comes_from() -> None:
    results = sample_results()
    assert "acceptance: " not in tune_table(results), "results of before do not say it"
    answered = from_source(results, FROM_ANSWERS)
    assert "\nacceptance: from each answer\n" in f"{tune_table(answered)}\n"
    assert best_line(answered) == best_line(results)
    counted = from_source(results, FROM_COUNTERS)
    wanted = "acceptance: from the server's counters, per block"
    assert f"\n{wanted}\n" in f"{tune_table(counted)}\n"
    assert re.search(r" · acceptance 0\.\d\d \(counters\) · ", best_line(counted))
    assert results.main is not None
    best = str(results.main.best)
    assert f"; from the server's counters, per block: {best}\n" in (
        f"{tune_table(from_source(results, FROM_COUNTERS, only=best))}\n"
    )


def test_compare_says_that_only_counters_were_there() -> None:
    told = "  by the server's counters: its answers do not report acceptance"
    for num_requests in (0, 20):
        evidence = Evidence(
            e2e=between(1.1, 1.3), acceptance=AcceptanceSummary(0.4, num_requests=num_requests)
        )
        assert (told in compare_table(evidence, decide(evidence))) == (num_requests == 0)


def test_the_table_says_what_its_intervals_are_worth() -> None:
    results = sample_results()
    assert "SHIP · 95 % interval, measured anew after the choice" in tune_table(results)
    assert "intervals of" not in tune_table(without_measurement(results))


def test_what_was_raced_stands_above_mere_predictions() -> None:
    results = sample_results()
    load = results.loads[0]
    hopes = tuple(
        replace(arm, predicted=9.0) if arm.state == PREDICTED else arm for arm in load.arms
    )
    assert any(arm.predicted == 9.0 for arm in hopes)
    table = tune_table(replace(results, loads=(replace(load, arms=hopes),)))
    lines = table.splitlines()
    raced = [arm.name for arm in hopes if arm.state in (BEST, RACED, DROPPED)]
    places = [i for i, line in enumerate(lines) if any(line.startswith(f"{n} ") for n in raced)]
    first_hope = next((i for i, line in enumerate(lines) if "9.00x" in line), len(lines))
    assert places
    assert max(places) < first_hope


def test_what_was_not_counted_and_what_a_second_is() -> None:
    table = bench_table(replace(SUMMARY, num_lead=16, plateau_s=10.04), {})
    assert (
        "250.0 tokens/s\nnot counted: 16 requests that brought the server to this load\n"
        "requests/s and tokens/s are over the 10.0 s in which all of it ran\ngoodput"
    ) in table


def test_what_the_servers_of_a_comparison_had_to_do() -> None:
    load = {"concurrency": 64, "block_size": 192, "num_blocks": 5, "running_requests": {}}
    words = "load: 64 at a time, 5 blocks of 192 requests to each server"
    assert load_lines(load) == words
    said = load_lines(load | {"running_requests": {"baseline": 62.52, "candidate": 61.0}})
    running = "running on average, as the servers count: baseline 62.5, candidate 61.0"
    assert said == f"{words}; {running}"
    gpus = {"candidate": {"gpu0_memory_gib_max": 70.0, "gpu0_busy_share_mean": 0.5}}
    last = "candidate: GPU 0: 70.0 GiB in use at most, busy 50 % of the time"
    assert load_lines(load | {"gpus": gpus}) == f"{words}\n{last}"
    measured = {"running_requests": {"baseline": 62.52}}
    bounds = {"running_requests_interval": {"baseline": [61.9, 63.1]}}
    assert load_lines(load | measured | bounds).endswith(
        "servers count: baseline 62.5 [61.9, 63.1]"
    )

"""Pages of every engine as readings, and what happened between two of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.acceptance import Acceptance
from outdraft.observe.page import parse_page
from outdraft.observe.reading import (
    TIMES,
    Growth,
    Reading,
    carried,
    from_json,
    growth,
    read_page,
    reading_of,
    to_json,
)

VLLM = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
vllm:generation_tokens_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 80.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 20.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 40.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 80.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 35.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 25.0
vllm:spec_decode_num_draft_tokens_per_pos_total{engine="0",model_name="m",position="0"} 40.0
vllm:spec_decode_num_draft_tokens_per_pos_total{engine="0",model_name="m",position="1"} 40.0
vllm:request_generation_tokens_sum{engine="0",model_name="m"} 90.0
vllm:request_generation_tokens_count{engine="0",model_name="m"} 10.0
vllm:request_decode_time_seconds_sum{engine="0",model_name="m"} 4.0
vllm:e2e_request_latency_seconds_count{engine="0",model_name="m"} 10.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="m"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="m"} 10.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="m"} 3.5
process_start_time_seconds 1700000000.5
vllm:something_else_total{engine="0",model_name="other"} 7.0
"""
OURS = (
    VLLM
    + """\
outdraft:step_seconds{engine="0",model_name="m",tokens="1"} 0.01
outdraft:rounds_without_draft_total{engine="0",model_name="m"} 6.0
outdraft:request_acceptance_rate_bucket{engine="0",le="0.5",model_name="m",temperature="0"} 1.0
outdraft:request_acceptance_rate_bucket{engine="0",le="+Inf",model_name="m",temperature="0"} 4.0
outdraft:request_acceptance_rate_sum{engine="0",model_name="m",temperature="0"} 2.5
outdraft:request_acceptance_rate_bucket{engine="0",le="0.5",model_name="m",temperature="1+"} 2.0
outdraft:request_acceptance_rate_bucket{engine="0",le="+Inf",model_name="m",temperature="1+"} 2.0
outdraft:request_acceptance_rate_sum{engine="0",model_name="m",temperature="1+"} 0.5
outdraft:decode_tokens_total{engine="0",model_name="m",side="plain",running="3-4"} 12.0
outdraft:decode_seconds_total{engine="0",model_name="m",side="plain",running="3-4"} 0.5
outdraft:decode_tokens_total{engine="0",model_name="m",side="speculating",running="1"} 50.0
outdraft:decode_seconds_total{engine="0",model_name="m",side="speculating",running="1"} 1.5
outdraft:decode_tokens_total{engine="0",model_name="m",side="speculating",running="2"} 9.0
"""
)
SGLANG = """\
sglang:num_running_reqs{model_name="s",tp_rank="0"} 4.0
sglang:num_queue_reqs{model_name="s",tp_rank="0"} 1.0
sglang:token_usage{model_name="s",tp_rank="0"} 0.5
sglang:cache_hit_rate{model_name="s",tp_rank="0"} 0.3
sglang:spec_num_draft_tokens{model_name="s",tp_rank="0"} 5.0
sglang:spec_verify_calls_total{model_name="s"} 10.0
sglang:prompt_tokens_total{model_name="s"} 200.0
sglang:cached_tokens_total{model_name="s"} 50.0
sglang:generation_tokens_total{model_name="s"} 32.0
sglang:num_requests_total{model_name="s"} 2.0
sglang:num_retracted_requests_total{model_name="s"} 3.0
sglang:inter_token_latency_seconds_sum{model_name="s"} 0.6
sglang:inter_token_latency_seconds_count{model_name="s"} 30.0
sglang:inter_token_latency_seconds_bucket{le="0.02",model_name="s"} 29.0
sglang:inter_token_latency_seconds_bucket{le="+Inf",model_name="s"} 30.0
"""
LLAMACPP = """\
llamacpp:prompt_tokens_total 150
llamacpp:prompt_tokens_cached_total 50
llamacpp:prompt_seconds_total 1.5
llamacpp:tokens_predicted_total 90
llamacpp:tokens_predicted_seconds_total 4.5
llamacpp:requests_processing 1
llamacpp:requests_deferred 0
llamacpp:n_busy_slots_per_decode 1.0
"""


def test_vllm() -> None:
    reading = reading_of(VLLM, 50.0)
    assert (reading.at, reading.engine, reading.model) == (50.0, "vllm", "m")
    assert reading.counters == {
        "num_tokens": 100,
        "num_requests": 10,
        "prefix_queries": 80,
        "prefix_hits": 20,
        "decode_seconds": 4,
        "decode_tokens": 80,
    }
    assert reading.gauges == {"running_requests": 5, "kv_cache_usage": 0.75}, "the fullest engine"
    assert reading.acceptance == Acceptance(40, 80, 60, 0, [35, 25], [40, 40])
    assert reading.started_at == 1_700_000_000.5
    assert reading.times["ttft"].counts == (4, 6)
    assert reading.times["ttft"].sum == 3.5
    assert not any("something_else" in key for key in reading.page), "nobody reads it"


def test_a_recorded_page_of_vllm() -> None:
    """Version 0.32.0 with n-gram drafts, k=4, on a CPU, after six answers of 48 tokens."""
    reading = reading_of((Path(__file__).parent / "vllm_0_32.txt").read_text(), 0.0)
    assert (reading.engine, reading.model, reading.started_at) == ("vllm", "smollm2", 1794854120.79)
    assert reading.counters["num_tokens"] == 6 * 48
    assert reading.counters["decode_tokens"] == 6 * 47
    assert (reading.counters["num_requests"], reading.counters["prefix_queries"]) == (6, 78)
    assert reading.gauges == {"running_requests": 0, "waiting_requests": 0, "kv_cache_usage": 0}
    assert reading.acceptance == Acceptance(54, 204, 204, 0, [54, 54, 48, 48])
    assert {name: each.count for name, each in reading.times.items()} == dict.fromkeys(TIMES, 6)
    assert (reading.counters["num_first_tokens"], reading.counters["num_steps"]) == (6, 78)
    per_token = reading.times["tpot"].sum / 6
    seconds = reading.counters["decode_seconds"] / reading.counters["decode_tokens"]
    assert per_token == pytest.approx(seconds, rel=1e-6), "all answers are of one length"


TIMES_PER_TOKEN = """\
vllm:request_time_per_output_token_seconds_bucket{le="0.01"} 7
vllm:request_time_per_output_token_seconds_bucket{le="+Inf"} 9
vllm:request_time_per_output_token_seconds_sum 0.4
"""


@pytest.mark.parametrize("bound", ["1.0", "1"])
def test_texts_of_one_token_have_no_time_per_token(bound: str) -> None:
    """vLLM counts 0 seconds for each of them; our server does not count them."""
    ones = 'vllm:request_generation_tokens_bucket{le="BOUND"} 4\n'.replace("BOUND", bound)
    more = TIMES_PER_TOKEN.replace("} 7", "} 12").replace("} 9", "} 15")
    before, after = (
        reading_of(VLLM + TIMES_PER_TOKEN + ones, 0.0),
        reading_of(VLLM + more + ones.replace("} 4", "} 7"), 5.0),
    )
    grown = growth(before, after)
    assert grown.times["tpot"].counts == (5 - 3, 1)
    assert grown.times["tpot"].sum == 0
    assert "num_one_token" not in grown.counters
    assert growth(replace(before, started_at=1.0), after).times["tpot"].counts == (12 - 7, 3)
    ours = growth(reading_of(OURS + TIMES_PER_TOKEN + ones, 0.0), reading_of(OURS + more, 5.0))
    assert ours.times["tpot"].counts == (5, 1)


def test_a_whole_page_reads_the_same() -> None:
    assert replace(read_page(parse_page(OURS), 1.0), model="m") == reading_of(OURS, 1.0)


def test_our_server_tells_more() -> None:
    reading = reading_of(OURS, 0.0)
    assert reading.engine == "outdraft"
    assert reading.acceptance is not None
    assert reading.acceptance.num_undrafted == 6
    assert {band: each.counts for band, each in reading.acceptance_shares.items()} == {
        "0": (1, 3),
        "1+": (2, 0),
    }
    assert reading.acceptance_shares["0"].sum == 2.5
    assert reading.slices == {("plain", "3-4"): (12, 0.5), ("speculating", "1"): (50, 1.5)}
    assert not reading.is_stopped


def test_slices_by_temperature_and_a_server_that_was_turned_off() -> None:
    labels = 'engine="0",model_name="m",side="tried",temperature="1+"'
    more = (
        f"outdraft:decode_tokens_by_temperature_total{{{labels}}} 7.0\n"
        f"outdraft:decode_seconds_by_temperature_total{{{labels}}} 0.25\n"
        'outdraft:speculation_stopped{engine="0",model_name="m"} 1.0\n'
    )
    reading = reading_of(OURS + more, 0.0)
    assert reading.slices["tried", "temperature 1+"] == (7, 0.25)
    assert len(reading.slices) == 3
    assert reading.is_stopped


def test_sglang() -> None:
    reading = reading_of(SGLANG, 0.0)
    assert (reading.engine, reading.model) == ("sglang", "s")
    assert reading.counters == {
        "num_tokens": 32,
        "num_prompt_tokens": 200,
        "num_requests": 2,
        "num_preemptions": 3,
        "prefix_queries": 200,
        "prefix_hits": 50,
        "decode_seconds": 0.6,
        "decode_tokens": 30,
    }
    assert reading.gauges == {
        "running_requests": 4,
        "waiting_requests": 1,
        "kv_cache_usage": 0.5,
        "prefix_hit_rate": 0.3,
    }
    assert reading.acceptance == Acceptance(10, 40, 20)
    assert reading.times["tpot"].counts == (29, 1)


def test_sglangs_drafts_become_shorter() -> None:
    """Only rounds are counted; a gauge says how long drafts are. 20 more rounds of 2 tokens."""
    shorter = SGLANG.replace('calls_total{model_name="s"} 10.0', "calls_total 30.0").replace(
        'spec_num_draft_tokens{model_name="s",tp_rank="0"} 5.0', "spec_num_draft_tokens 3.0"
    )
    grown = growth(reading_of(SGLANG, 0.0), reading_of(shorter, 5.0)).acceptance
    assert grown is not None
    assert (grown.num_drafts, grown.num_draft_tokens) == (20, 40)


def test_llamacpp() -> None:
    reading = reading_of(LLAMACPP, 0.0)
    assert (reading.engine, reading.model, reading.times) == ("llamacpp", None, {})
    assert reading.counters == {
        "num_tokens": 90,
        "num_prompt_tokens": 150,
        "prefix_queries": 200,
        "prefix_hits": 50,
        "decode_seconds": 4.5,
        "decode_tokens": 90,
    }
    assert reading.gauges == {"running_requests": 1, "waiting_requests": 0}
    assert not reading.speculates


@pytest.mark.parametrize(("num_drafts", "speculates"), [(0, False), (3, True)])
def test_a_plain_llamacpp_has_counters_of_drafts_too(num_drafts: int, speculates: bool) -> None:
    counts = {"draft_tokens": 4 * num_drafts, "accepted_tokens": num_drafts, "drafts": num_drafts}
    counters = "".join(
        f"llamacpp:spec_decode_num_{name}_total {number}\n" for name, number in counts.items()
    )
    assert reading_of(LLAMACPP + counters, 0.0).speculates == speculates


@pytest.mark.parametrize("text", [VLLM, OURS, SGLANG, LLAMACPP, "", "<html></html>"])
def test_a_recorded_reading_reads_the_same(text: str) -> None:
    reading = reading_of(text, 12.5, version="1.0")
    again = from_json(to_json(reading))
    assert again == reading
    assert again.page == reading.page


def test_growth_of_our_server() -> None:
    more = (
        OURS.replace('side="plain",running="3-4"} 12.0', 'side="plain",running="3-4"} 20.0')
        .replace('side="plain",running="3-4"} 0.5', 'side="plain",running="3-4"} 0.75')
        .replace('le="+Inf",model_name="m",temperature="0"} 4.0', 'le="+Inf",temperature="0"} 9.0')
        .replace("rounds_without_draft_total{engine=\"0\",model_name=\"m\"} 6.0",
                 "rounds_without_draft_total 8.0")
    )  # fmt: skip
    grown = growth(reading_of(OURS, 0.0), reading_of(more, 5.0))
    assert grown.slices == {("plain", "3-4"): (8, 0.25), ("speculating", "1"): (0, 0)}
    assert grown.acceptance_shares["0"].counts == (0, 5)
    assert grown.acceptance_share is not None
    assert grown.acceptance_share.count == 5
    assert grown.acceptance is not None
    assert grown.acceptance.num_undrafted == 2
    both = Growth.total([grown, replace(grown, start=5.0, end=10.0)])
    assert both is not None
    assert both.slices["plain", "3-4"] == (16, 0.5)
    assert both.seconds == 10


def counted(at: float, started_at: float | None = None, **counters: float) -> Reading:
    return Reading(at, "vllm", counters, {}, started_at=started_at)


def test_a_counter_that_fell_counts_from_zero_with_all_others() -> None:
    grown = growth(
        counted(0, num_tokens=50, num_requests=5), counted(5, num_tokens=60, num_requests=2)
    )
    assert (grown.counters, grown.num_restarts) == ({"num_tokens": 60, "num_requests": 2}, 1)
    later = growth(
        counted(0, started_at=100.0, num_tokens=5), counted(5, started_at=200.0, num_tokens=9)
    )
    assert (later.counters, later.num_restarts) == ({"num_tokens": 9}, 1)


def test_tokens_after_the_first_may_fall_without_a_restart() -> None:
    """They are a sum less a count, which are not read at one moment."""
    grown = growth(
        counted(0, decode_tokens=50, num_requests=5), counted(5, decode_tokens=49, num_requests=6)
    )
    assert (grown.counters["decode_tokens"], grown.num_restarts) == (-1, 0)


def test_a_counter_that_was_away_is_not_counted_twice() -> None:
    readings = [
        counted(0, num_tokens=50, num_requests=1),
        counted(5, num_requests=2),
        counted(10, num_tokens=60, num_requests=3),
    ]
    base = carried(readings[0], readings[1])
    assert growth(base, readings[2]).counters == {"num_tokens": 10, "num_requests": 1}


def test_holes_between_parts_are_gaps() -> None:
    parts = [
        Growth(start, start + 5, {"num_tokens": 10.0}, {"running_requests": 20.0}, {}, None)
        for start in (0.0, 5.0, 60.0)
    ]
    total = Growth.total(parts)
    assert total is not None
    assert (total.start, total.end, total.gap_s, total.seconds) == (0, 65, 50, 15)
    assert total.gauge("running_requests") == 4
    assert total.per_second("num_tokens") == 30 / 65


def test_several_servers_over_the_same_time() -> None:
    parts = [
        Growth(
            0.0,
            10.0,
            {"num_tokens": 10.0},
            {"running_requests": n * (10.0 - gap), "kv_cache_usage": n * (10 - gap) / 10},
            {},
            None,
            gap_s=gap,
        )
        for n, gap in ((2.0, 0.0), (4.0, 5.0))
    ]
    fleet = Growth.together(parts)
    assert fleet is not None
    assert fleet.seconds == 10
    assert fleet.gauge("running_requests") == 6
    assert fleet.gauge("kv_cache_usage") == pytest.approx(0.3)
    assert fleet.counters == {"num_tokens": 20}
    assert Growth.together([]) is None
    assert Growth.total([]) is None


def test_what_one_of_several_servers_does_not_count_is_not_known_of_them() -> None:
    counting, silent, idle = (
        Growth(0.0, 10.0, counters, {}, {}, None)
        for counters in ({"num_tokens": 10.0, "num_requests": 2.0}, {"num_tokens": 5.0}, {})
    )
    both = Growth.together([counting, silent])
    assert both is not None
    assert both.counters == {"num_tokens": 15}
    with_idle = Growth.together([counting, idle])
    assert with_idle is not None
    assert with_idle.counters == counting.counters


def test_a_page_cannot_make_a_reading_as_large_as_it_likes() -> None:
    wide = "outdraft:step_seconds 1\nvllm:spec_decode_num_draft_tokens_total 1\n" + "".join(
        f'outdraft:decode_tokens_total{{side="s",running="{n}"}} 1\n'
        f'outdraft:decode_seconds_total{{side="s",running="{n}"}} 1\n'
        f'outdraft:request_acceptance_rate_bucket{{temperature="{n}",le="+Inf"}} 1\n'
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{n}"}} 1\n'
        f'vllm:time_to_first_token_seconds_bucket{{le="{n}"}} 1\n'
        f'vllm:generation_tokens_total{{model_name="m{n}"}} 1e308\n'
        for n in range(2_000)
    )
    reading = reading_of(wide, 0.0)
    assert len(reading.slices) == 96
    assert len(reading.acceptance_shares) == 16
    assert reading.acceptance is not None
    assert len(reading.acceptance.accepted_per_position) == 64
    assert reading.times == {}
    assert "num_tokens" not in reading.counters, "too large to be added up"
    long = f'vllm:generation_tokens_total{{model_name="{"m" * 5_000}"}} 1\n'
    assert reading_of(long, 0.0).model is None


@pytest.mark.parametrize("said", ["ngram`; curl evil|sh #", r"\x1b[2Jngram", "", "new", "ngram "])
def test_a_method_that_is_none_of_ours_is_not_known(said: str) -> None:
    page = f'outdraft:speculation_method{{method="{said}"}} 1.0\n'
    assert reading_of(page, 0.0).method is None


def test_a_server_of_ours_says_how_it_proposes() -> None:
    page = 'outdraft:speculation_method{model_name="m",engine="0",method="auto"} 1.0\n'
    assert reading_of(page, 0.0).method == "auto"
    assert reading_of("outdraft:step_seconds 1\n", 0.0).method is None
    assert from_json(to_json(reading_of(page, 0.0))).method == "auto"
    drafts = 'vllm:spec_decode_num_draft_tokens_total{engine="0",method="eagle"} 5\n'
    counted = reading_of(drafts, 0.0).acceptance
    assert counted is not None
    assert counted.num_draft_tokens == 5

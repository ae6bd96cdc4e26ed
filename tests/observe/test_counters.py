"""Counters of a /metrics page, under the names of each engine."""

from __future__ import annotations

from outdraft.acceptance import Acceptance
from outdraft.observe.counters import (
    Written,
    engine_of,
    read_acceptance,
    read_gauges,
    read_kv_size,
    read_written,
)
from outdraft.observe.page import page_difference, parse_page


def test_a_page_names_its_engine() -> None:
    assert engine_of({"vllm:num_requests_running": 0.0}) == "vllm"
    ours = {"vllm:num_requests_running": 0.0, "outdraft:rounds_total": 0.0}
    assert engine_of(ours) == "outdraft", "our server has vLLM's names beside its own"
    assert engine_of({"other:requests_total": 3.0}) is None


def test_a_page_of_another_server_has_no_drafts() -> None:
    assert read_acceptance({"other:requests_total": 3.0}) is None
    assert read_acceptance({"other:spec_decode_num_draft_tokens_total": 3.0}) is None
    not_measured = parse_page("vllm:spec_decode_num_draft_tokens_total NaN\nc_total 1\n")
    assert read_acceptance(not_measured) is None


def test_drafts_of_every_engine_that_counts_them() -> None:
    page = parse_page(
        "llamacpp:spec_decode_num_drafts_total 10\n"
        "llamacpp:spec_decode_num_draft_tokens_total 40\n"
        "llamacpp:spec_decode_num_accepted_tokens_total 25\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9\n'
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 8\n'
    )
    assert read_acceptance(page) == Acceptance(10, 40, 25, accepted_per_position=[9, 8])
    renamed = {key.replace("llamacpp:", "vllm:"): value for key, value in page.items()}
    assert read_acceptance(renamed) == read_acceptance(page)
    assert read_acceptance({"vllm:generation_tokens_total": 5.0}) is None


def test_the_size_of_a_kv_cache() -> None:
    info = 'vllm:cache_config_info{block_size="16",engine="%d",num_gpu_blocks="%s"} 1.0\n'
    assert read_kv_size(parse_page(info % (0, "661"))) == 661
    assert read_kv_size(parse_page(info % (0, "661") + info % (1, "661"))) == 1322
    assert read_kv_size(parse_page(info % (0, "661") + info % (1, "600"))) == 1261
    assert read_kv_size(parse_page(info % (0, "None"))) is None
    assert read_kv_size(parse_page("sglang:max_total_num_tokens 471258\n")) == 471258
    assert read_kv_size({}) is None


def test_gauges_under_each_name() -> None:
    assert read_gauges({"vllm:kv_cache_usage_perc": 0.25}) == {"kv_cache_usage": 0.25}
    assert read_gauges({"sglang:token_usage": 0.5}) == {"kv_cache_usage": 0.5}
    busy = {"vllm:num_requests_running": 3.0, "vllm:kv_cache_usage_perc": 0.0}
    assert read_gauges(busy) == {"running_requests": 3.0, "kv_cache_usage": 0.0}
    assert read_gauges({"llamacpp:requests_processing": 2.0}) == {"running_requests": 2.0}
    assert read_gauges({"other": 1.0}) == {}


def test_what_was_written_under_each_name() -> None:
    page = parse_page(
        "vllm:generation_tokens_total 90\n"
        'vllm:request_success_total{finished_reason="length"} 3\n'
        'vllm:request_success_total{finished_reason="abort"} 1\n'
    )
    assert read_written(page) == Written(90, 4)
    assert read_written(page | {"vllm:time_to_first_token_seconds_count": 5.0}) == Written(90, 5)
    sglang = {"sglang:generation_tokens_total": 32.0, "sglang:num_requests_total": 2.0}
    assert read_written(sglang) == Written(32, 2)
    assert read_written({"vllm:generation_tokens_total": 90.0}) is None
    llamacpp = {"llamacpp:tokens_predicted_total": 90.0}
    assert read_written(llamacpp) is None, "it counts no texts"
    assert read_written(llamacpp, num_sent=7) == Written(90, 7)
    assert read_written(page, num_sent=7) == Written(90, 4), "the server knows better"


def test_rounds_are_counted_and_the_rest_follows() -> None:
    page = parse_page(
        'sglang:spec_verify_calls_total{m="x"} 10\nsglang:spec_num_draft_tokens{m="x"} 5\n'
        'sglang:generation_tokens_total{m="x"} 32\nsglang:num_requests_total{m="x"} 2\n'
    )
    counts = read_acceptance(page)
    assert counts is not None
    assert (counts.num_drafts, counts.num_draft_tokens, counts.num_accepted_tokens) == (10, 40, 20)
    off = parse_page("sglang:spec_num_draft_tokens 0\nsglang:generation_tokens_total 32\n")
    assert read_acceptance(off) is None


def test_drafts_between_two_pages_are_counted_with_the_length_that_is_a_gauge() -> None:
    before = parse_page("sglang:spec_num_draft_tokens 5\nsglang:spec_verify_calls_total 10\n"
                   "sglang:generation_tokens_total 40\nsglang:num_requests_total 2\n")  # fmt: skip
    after = parse_page("sglang:spec_num_draft_tokens 5\nsglang:spec_verify_calls_total 30\n"
                  "sglang:generation_tokens_total 100\nsglang:num_requests_total 4\n")  # fmt: skip
    counts = read_acceptance(page_difference(after, before))
    assert counts is not None
    assert (counts.num_drafts, counts.num_draft_tokens) == (20, 80)
    assert counts.num_accepted_tokens == 60 - 2 - 20


def test_counters_are_matched_by_their_whole_name() -> None:
    page = parse_page(PAGE)
    counts = read_acceptance(page)
    assert counts is not None
    assert (counts.num_drafts, counts.num_draft_tokens, counts.num_accepted_tokens) == (2, 10, 7)
    assert counts.accepted_per_position == [2, 2, 2, 1, 0]
    assert read_acceptance(parse_page("vllm:prompt_tokens_total 3\n")) is None


PAGE = """\
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 2.0
vllm:spec_decode_num_drafts_created{engine="0",model_name="m"} 1.79e+09
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 10.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 7.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="2"} 2.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="3"} 1.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="4"} 0.0
"""

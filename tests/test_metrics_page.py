from __future__ import annotations

from outdraft.metrics_page import difference, drafted, kv_usage, parse, per_position
from outdraft.records import AcceptanceCounts

PAGE = """\
# HELP vllm:spec_decode_num_accepted_tokens_total Accepted
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="a"} 30.0
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="a"} 12.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a",position="0"} 25.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="a",position="1"} 17.0
vllm:kv_cache_usage_perc{engine="0",model_name="with \\"quotes\\", and, commas"} 0.25
nonsense line here
vllm:broken{engine="0"} not-a-number
vllm:with_time_total 5 1700000000
"""


def test_names_are_exact_and_engines_are_summed() -> None:
    page = parse(PAGE)
    assert page["vllm:spec_decode_num_accepted_tokens_total"] == 42
    assert page["vllm:kv_cache_usage_perc"] == 0.25
    assert page["vllm:with_time_total"] == 5
    assert not any("broken" in key or "nonsense" in key for key in page)


def test_positions() -> None:
    name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
    assert per_position(parse(PAGE), name) == (25, 17)
    assert per_position(parse(PAGE), "vllm:spec_decode_num_accepted_tokens_total") == ()


def test_difference_is_of_counters_and_survives_a_restart() -> None:
    before = {"a_total": 10.0, "b_total": 50.0, "gauge": 1.0, 'c_bucket{le="1"}': 2.0}
    after = {**before, "a_total": 15.0, "b_total": 5.0, "gauge": 9.0, "new_total": 3.0}
    changed = difference(after, before)
    assert changed == {"a_total": 5.0, "b_total": 5.0, "new_total": 3.0, "gauge": 9.0}


def test_any_text_is_taken() -> None:
    assert parse("<html>not metrics</html>\n\x00\n{}{}") == {}


def test_what_is_no_number_is_no_count() -> None:
    page = parse("vllm:spec_decode_num_draft_tokens_total NaN\nb_total +Inf\nc_total 1\n")
    assert page == {"c_total": 1.0}
    assert drafted(page) is None


def test_drafts_of_every_engine_that_counts_them() -> None:
    page = parse(
        "llamacpp:spec_decode_num_drafts_total 10\n"
        "llamacpp:spec_decode_num_draft_tokens_total 40\n"
        "llamacpp:spec_decode_num_accepted_tokens_total 25\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 9\n'
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 8\n'
    )
    assert drafted(page) == AcceptanceCounts(10, 40, 25, (9, 8))
    renamed = {key.replace("llamacpp:", "vllm:"): value for key, value in page.items()}
    assert drafted(renamed) == drafted(page)
    assert drafted({"vllm:generation_tokens_total": 5.0}) is None


def test_kv_usage_under_each_name() -> None:
    assert kv_usage({"vllm:kv_cache_usage_perc": 0.25}) == 0.25
    assert kv_usage({"sglang:token_usage": 0.5}) == 0.5
    assert kv_usage({"other": 1.0}) is None

from __future__ import annotations

from outdraft.observe.page import page_difference, parse_page, parse_samples

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
    page = parse_page(PAGE)
    assert page["vllm:spec_decode_num_accepted_tokens_total"] == 42
    assert page["vllm:kv_cache_usage_perc"] == 0.25
    assert page["vllm:with_time_total"] == 5
    assert not any("broken" in key or "nonsense" in key for key in page)


def test_labels_are_there_in_the_samples() -> None:
    [(_, labels, value), *_] = parse_samples(PAGE)
    assert labels == {"engine": "0", "model_name": "a"}
    assert value == 30
    usage = next(labels for name, labels, _ in parse_samples(PAGE) if "usage" in name)
    assert usage["model_name"] == 'with \\"quotes\\", and, commas'


def test_difference_is_of_counters_and_survives_a_restart() -> None:
    before = {"a_total": 10.0, "b_total": 50.0, "gauge": 1.0, 'c_bucket{le="1"}': 2.0}
    after = {**before, "a_total": 15.0, "b_total": 5.0, "gauge": 9.0, "new_total": 3.0}
    changed = page_difference(after, before)
    assert changed == {"a_total": 5.0, "b_total": 5.0, "new_total": 3.0, "gauge": 9.0}


def test_any_text_is_taken() -> None:
    assert parse_page("<html>not metrics</html>\n\x00\n{}{}") == {}


def test_what_is_no_number_is_no_count() -> None:
    page = parse_page("vllm:spec_decode_num_draft_tokens_total NaN\nb_total +Inf\nc_total 1\n")
    assert page == {"c_total": 1.0}

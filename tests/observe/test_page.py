from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.observe.names import NAMES
from outdraft.observe.page import (
    page_difference,
    page_of_samples,
    parse_named,
    parse_page,
    parse_samples,
    read_models,
)

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


names = st.sampled_from([*sorted(NAMES), "other_total", "vllm:generation_tokens"])
labels = st.dictionaries(
    st.sampled_from(["engine", "le", "position", "side", "running", "temperature"]),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=6).map(
        lambda text: text.replace("\\", "").replace('"', "'")
    ),
)
samples = st.tuples(names, labels, st.floats(-1e15, 1e15), st.sampled_from(["", " 1700000000"]))


@given(st.lists(samples), st.sampled_from(["\n", "\r\n"]))
def test_the_names_that_are_read_are_parsed_as_all_of_them(
    lines: list[tuple[str, dict[str, str], float, str]], newline: str
) -> None:
    written = []
    for name, own, value, when in lines:
        text = ",".join(f'{key}="{each}"' for key, each in own.items())
        written.append(f"{name}{{{text}}} {value}{when}" if text else f"{name} {value}{when}")
    page = parse_page(newline.join(written))
    expected = {key: value for key, value in page.items() if key.partition("{")[0] in NAMES}
    assert parse_named(newline.join(written), NAMES) == pytest.approx(expected)


@given(st.text())
def test_any_text_has_names(text: str) -> None:
    assert isinstance(parse_named(text, NAMES), dict)
    assert isinstance(parse_named(f"vllm:generation_tokens_total{text}", NAMES), dict)


def test_the_models_of_a_page() -> None:
    text = "".join(f'vllm:generation_tokens_total{{model_name="{n}"}} 1\n' for n in "bab")
    page = parse_named(text, NAMES)
    assert read_models(page) == ("a", "b")
    assert page["vllm:generation_tokens_total"] == 3
    series = 'vllm:generation_tokens_total{model_name="b"'
    again = page_of_samples(
        [(series, 2.0), (series.replace("b", "a"), 1.0), (series, float("nan"))]
    )
    assert again == page


def test_a_look_at_vllms_page_costs_little() -> None:
    """50 replicas every 5 s are to cost less than 5 % of a core: 5 ms for each look."""
    text = (Path(__file__).parent / "vllm_0_32.txt").read_text()
    parse_named(text, NAMES)
    start = time.process_time()
    for _ in range(20):
        parse_named(text, NAMES)
    assert (time.process_time() - start) / 20 < 0.005

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outdraft.observe.page import parse_page
from outdraft.observe.reading import growth, read_page
from outdraft.watch.findings import FLEET, Action, Advice, Alarm
from outdraft.watch.snapshot import ReplicaState, ReplicaView, Snapshot, window_figures

BEFORE = """
vllm:generation_tokens_total{model_name="m"} 0
vllm:prompt_tokens_total{model_name="m"} 0
vllm:e2e_request_latency_seconds_count{model_name="m"} 0
vllm:num_preemptions_total{model_name="m"} 1
vllm:prefix_cache_queries_total{model_name="m"} 0
vllm:prefix_cache_hits_total{model_name="m"} 0
vllm:num_requests_running{model_name="m"} 2
vllm:spec_decode_num_drafts_total{model_name="m"} 0
vllm:spec_decode_num_draft_tokens_total{model_name="m"} 0
vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 0
"""
AFTER = """
vllm:generation_tokens_total{model_name="m"} 1010
vllm:prompt_tokens_total{model_name="m"} 500
vllm:e2e_request_latency_seconds_count{model_name="m"} 10
vllm:num_preemptions_total{model_name="m"} 3
vllm:prefix_cache_queries_total{model_name="m"} 200
vllm:prefix_cache_hits_total{model_name="m"} 50
vllm:num_requests_running{model_name="m"} 4
vllm:spec_decode_num_drafts_total{model_name="m"} 400
vllm:spec_decode_num_draft_tokens_total{model_name="m"} 1200
vllm:spec_decode_num_accepted_tokens_total{model_name="m"} 600
vllm:request_time_per_output_token_seconds_bucket{model_name="m",le="0.01"} 5
vllm:request_time_per_output_token_seconds_bucket{model_name="m",le="0.1"} 10
vllm:request_time_per_output_token_seconds_bucket{model_name="m",le="+Inf"} 10
vllm:request_time_per_output_token_seconds_sum{model_name="m"} 0.5
outdraft:request_acceptance_rate_bucket{model_name="m",temperature="0",le="0.5"} 1
outdraft:request_acceptance_rate_bucket{model_name="m",temperature="0",le="1.0"} 8
outdraft:request_acceptance_rate_bucket{model_name="m",temperature="0",le="+Inf"} 8
outdraft:request_acceptance_rate_sum{model_name="m",temperature="0"} 6
outdraft:request_acceptance_rate_bucket{model_name="m",temperature="1+",le="0.5"} 2
outdraft:request_acceptance_rate_bucket{model_name="m",temperature="1+",le="1.0"} 2
outdraft:request_acceptance_rate_bucket{model_name="m",temperature="1+",le="+Inf"} 2
outdraft:request_acceptance_rate_sum{model_name="m",temperature="1+"} 0.5
"""


def test_figures_are_those_of_the_window() -> None:
    before, after = (read_page(parse_page(t), at) for t, at in ((BEFORE, 0.0), (AFTER, 100.0)))
    figures = window_figures(growth(before, after))
    assert (figures.seconds, figures.num_requests, figures.num_tokens) == (100, 10, 1010)
    assert figures.tokens_per_s == pytest.approx(10.1)
    assert figures.acceptance_rate == pytest.approx(0.5)
    assert figures.acceptance_length == pytest.approx(2.5)
    assert figures.tokens_per_round == pytest.approx(1000 / 400)
    assert (figures.running, figures.preemptions, figures.prefix_hit_rate) == (3, 2, 0.25)
    assert figures.waiting is None
    assert figures.times["tpot"].p50 == pytest.approx(0.01)
    assert figures.times["tpot"].p99 == pytest.approx(0.01 + 0.09 * 4.9 / 5)
    assert figures.bands["0"].mean == pytest.approx(0.75)
    assert figures.bands["1+"].count == 2
    assert figures.bands["1+"].p50 == pytest.approx(0.25)
    assert figures.acceptance_of_requests is not None
    assert figures.acceptance_of_requests.mean == pytest.approx(0.65)


def test_steps_are_those_that_the_server_counts() -> None:
    """Accepted tokens may lie behind the end of a text, and texts may be abandoned."""
    firsts = "vllm:time_to_first_token_seconds_count 10\nvllm:inter_token_latency_seconds_count 500"
    before, after = read_page(parse_page(BEFORE), 0.0), read_page(parse_page(AFTER + firsts), 9.0)
    assert window_figures(growth(before, after)).tokens_per_round == pytest.approx(1000 / 500)


LLAMACPP = """
llamacpp:tokens_predicted_total 90
llamacpp:tokens_predicted_seconds_total 4.5
llamacpp:spec_decode_num_drafts_total 20
llamacpp:spec_decode_num_draft_tokens_total 50
llamacpp:spec_decode_num_accepted_tokens_total 30
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 20
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 10
llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="2"} 0
"""


def test_what_a_server_does_not_count_is_not_made_up() -> None:
    """llama.cpp counts no requests, so neither the steps in which their texts were written."""
    empty = read_page(parse_page("llamacpp:tokens_predicted_total 0"), 0.0)
    figures = window_figures(growth(empty, read_page(parse_page(LLAMACPP), 10.0)))
    assert (figures.num_requests, figures.requests_per_s, figures.tokens_per_round) == (None,) * 3
    assert figures.times == {}
    assert (figures.num_tokens, figures.tokens_per_s, figures.seconds_per_token) == (90, 9, 0.05)
    assert (figures.acceptance_rate, figures.acceptance_length) == (0.6, 2.5)
    assert figures.acceptance_by_position == (1.0, 0.5, 0.0)


def test_a_snapshot_is_json_and_says_whether_to_keep() -> None:
    alarm = Alarm("fellows", "a", 1.0, "0.2 against 0.7", "look at it", "outdraft watch a")
    keep = Advice(Action.KEEP, "a", 1.0, "it pays")
    lower = Advice(Action.LOWER_K, FLEET, 1.0, "k = 2 is faster", k=2)
    view = ReplicaView("a", ReplicaState.UP, advice=keep, alarms=(alarm,))
    calm = Snapshot(9.0, 0.0, 600.0, (view,), ReplicaView(FLEET, ReplicaState.UP))
    assert calm.says_keep
    assert not calm.is_kept, "of all replicas together nothing is said"
    kept = replace(calm, fleet=ReplicaView(FLEET, ReplicaState.UP, advice=keep))
    assert kept.is_kept
    for fleet in (
        replace(kept.fleet, state=ReplicaState.DOWN),
        replace(kept.fleet, state=ReplicaState.NEW),
        replace(kept.fleet, speculates=False),
    ):
        assert not replace(kept, fleet=fleet).is_kept
    off = replace(view, name="b", advice=Advice(Action.TURN_OFF, "b", 1.0, "it loses"))
    assert not replace(calm, replicas=(view, off)).says_keep
    assert replace(calm, replicas=(view, replace(off, state=ReplicaState.GONE))).says_keep
    assert calm.alarms == (alarm,)
    fleet = ReplicaView(FLEET, ReplicaState.UP, advice=lower)
    changed = Snapshot(9.0, 0.0, 600.0, (view,), fleet)
    assert not changed.says_keep
    written = json.loads(json.dumps(changed.to_json()))
    assert written["fleet"]["advice"]["words"] == "LOWER K TO 2"
    assert written["replicas"][0]["state"] == "up"
    assert written["replicas"][0]["alarms"][0]["kind"] == "fellows"

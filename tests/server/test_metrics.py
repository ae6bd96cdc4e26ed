"""/metrics: the names that dashboards know, and numbers that agree with the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outdraft import Engine, load_engine
from outdraft.workload.temperatures import temperature_band
from tests.server.conftest import NGRAM
from tests.server.serving import serving
from tests.server.wire import FEW, PROMPT, Metrics, Wire

HISTOGRAMS = (
    "vllm:time_to_first_token_seconds",
    "vllm:inter_token_latency_seconds",
    "vllm:request_time_per_output_token_seconds",
    "vllm:e2e_request_latency_seconds",
    "vllm:request_queue_time_seconds",
    "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds",
    "vllm:request_inference_time_seconds",
)
ALWAYS = {
    *(f"{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")),
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "outdraft:step_seconds",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:request_success_total",
    "outdraft:decode_seconds_total",
    "outdraft:decode_tokens_total",
}
SPECULATIVE = {
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_per_pos_total",
    "outdraft:draft_tokens_per_pos_total",
    "outdraft:request_acceptance_rate_bucket",
    "outdraft:rounds_total",
    "outdraft:rounds_without_draft_total",
    "outdraft:speculation_spent_seconds_total",
    "outdraft:speculation_plain_seconds_total",
    "outdraft:speculation_net_benefit",
    "outdraft:speculation_max_k",
    "outdraft:speculation_method",
}
ASKED: dict[str, Any] = {
    "max_tokens": 30, "logit_bias": FEW, "ignore_eos": True, "seed": 1, "include_metrics": True,
}  # fmt: skip
REQUESTS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.2, "n": 2},
    {"temperature": 0.7},
    {"temperature": 1.0, "speculation": {"k": 2}},
    {"temperature": 1.5, "stop": ["L", "M", "K"], "min_tokens": 20},
    {"temperature": 1.5, "speculation": {"k": 1}},
    {"temperature": 0, "speculation": {"method": "off"}},
    {"temperature": 0, "prompt": [PROMPT, "a"], "max_tokens": 1},
)
Served = tuple[list[dict[str, Any]], Metrics]


@pytest.fixture(scope="module")
def served(tiny_folder: Path) -> Iterator[Served]:
    """The answers of a server that has written nothing else, and its scrape afterwards."""
    engine = load_engine(str(tiny_folder), NGRAM, kv_cache_bytes=8 << 20, reuse_prefixes=False)
    with serving(engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            answers = [wire.complete(**{"prompt": PROMPT, **ASKED, **each}) for each in REQUESTS]
            yield answers, wire.metrics()


def total(answers: list[dict[str, Any]], name: str) -> float:
    return sum(answer["metrics"]["speculative_decoding"][name] for answer in answers)


# ------------------------------------------------------------------ names


def test_names(served: Served) -> None:
    metrics = served[1]
    assert metrics.names >= ALWAYS | SPECULATIVE
    assert all(name.startswith(("vllm:", "outdraft:")) for name in metrics.names)


def test_every_sample_names_the_model(served: Served) -> None:
    for family in served[1].families.values():
        assert all(sample.labels["model_name"] == "tiny" for sample in family.samples)


@pytest.mark.parametrize("name", HISTOGRAMS)
def test_buckets_down_to_a_millisecond(served: Served, name: str) -> None:
    buckets = [float(edge) for edge in served[1].by(f"{name}_bucket", "le")]
    assert min(buckets) == 0.001
    assert buckets == sorted(buckets)
    assert served[1].value(f"{name}_sum") > 0


def test_without_speculation(plain_wire: Wire) -> None:
    plain_wire.complete(max_tokens=5)
    names = plain_wire.metrics().names
    assert names >= ALWAYS
    assert not names & SPECULATIVE


def test_a_server_that_has_done_nothing(tiny_engine: Engine) -> None:
    """What can be counted is 0; of what was never measured there is no number."""
    with serving(tiny_engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            metrics = wire.metrics()
            answer = wire.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert metrics.is_idle
    assert metrics.value("vllm:spec_decode_num_drafts_total") == 0
    assert metrics.value("outdraft:rounds_without_draft_total") == 0
    assert "outdraft:speculation_net_benefit" not in metrics.names


# ------------------------------------------------------------------ numbers


def test_tokens(served: Served) -> None:
    answers, metrics = served
    usages = [answer["usage"] for answer in answers]
    assert metrics.value("vllm:prompt_tokens_total") == sum(
        usage["prompt_tokens"] * len(answer["choices"]) // len(asked.get("prompt", [0]))
        for usage, answer, asked in zip(usages, answers, REQUESTS, strict=True)
    )
    written = sum(usage["completion_tokens"] for usage in usages)
    assert metrics.value("vllm:generation_tokens_total") == written
    assert metrics.value("vllm:request_generation_tokens_sum") == written


def test_choices(served: Served) -> None:
    answers, metrics = served
    reasons = Counter(c["finish_reason"] for answer in answers for c in answer["choices"])
    assert set(reasons) == {"stop", "length"}
    found = metrics.by("vllm:request_success_total", "finished_reason")
    assert found == {"abort": 0, **reasons}
    num_choices = sum(reasons.values())
    for name in ("time_to_first_token_seconds", "e2e_request_latency_seconds",
                 "request_queue_time_seconds", "request_prompt_tokens"):  # fmt: skip
        assert metrics.value(f"vllm:{name}_count") == num_choices
    # Two texts are a single token: there is no time between tokens.
    assert metrics.value("vllm:request_time_per_output_token_seconds_count") == num_choices - 2


def test_drafts(served: Served) -> None:
    answers, metrics = served
    name = "vllm:spec_decode_num"
    assert metrics.value(f"{name}_drafts_total") == total(answers, "num_spec_steps") > 0
    assert metrics.value(f"{name}_draft_tokens_total") == total(answers, "num_draft_tokens")
    accepted = total(answers, "num_accepted_draft_tokens")
    assert metrics.value(f"{name}_accepted_tokens_total") == accepted > 0
    taken = metrics.by(f"{name}_accepted_tokens_per_pos_total", "position")
    assert list(taken) == ["0", "1", "2", "3"]
    assert sum(taken.values()) == accepted
    assert list(taken.values()) == sorted(taken.values(), reverse=True)
    proposed = metrics.by("outdraft:draft_tokens_per_pos_total", "position")
    assert sum(proposed.values()) == total(answers, "num_draft_tokens")
    assert proposed["0"] == total(answers, "num_spec_steps")


def test_rounds_by_draft_length(served: Served) -> None:
    answers, metrics = served
    rounds = {int(k): count for k, count in metrics.by("outdraft:rounds_total", "k").items()}
    assert set(rounds) == {0, 1, 2, 3, 4}
    without = total(answers, "num_steps_without_draft")
    assert metrics.value("outdraft:rounds_without_draft_total") == rounds[0] == without
    assert sum(k * count for k, count in rounds.items()) == total(answers, "num_draft_tokens")
    assert sum(rounds.values()) - rounds[0] == total(answers, "num_spec_steps")


def test_acceptance_by_temperature(served: Served) -> None:
    """A choice counts once, in its band, if anything was proposed for it."""
    answers, metrics = served
    name = "outdraft:request_acceptance_rate"
    counts = metrics.by(f"{name}_count", "temperature")
    assert counts == {"0": 1, "0-0.3": 2, "0.3-0.7": 1, "0.7-1": 1, "1+": 2}
    rate = answers[0]["metrics"]["speculative_decoding"]["draft_acceptance_rate"]
    assert metrics.value(f"{name}_sum", temperature="0") == pytest.approx(rate)


def test_the_estimate_of_what_speculation_is_worth(served: Served) -> None:
    """Within the first minute the present estimate is that of all there was."""
    metrics = served[1]
    plain = metrics.value("outdraft:speculation_plain_seconds_total")
    spent = metrics.value("outdraft:speculation_spent_seconds_total")
    assert min(plain, spent) > 0
    benefit = metrics.value("outdraft:speculation_net_benefit")
    assert benefit == pytest.approx(plain / spent - 1)


def test_prefixes(tiny_engine: Engine) -> None:
    prompt = list(range(100, 140))
    with serving(tiny_engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            cached = [wire.complete(prompt, max_tokens=1)["usage"] for _ in range(2)]
            metrics = wire.metrics()
    assert metrics.value("vllm:prefix_cache_queries_total") == 80
    hits = metrics.value("vllm:prefix_cache_hits_total")
    assert hits == cached[1]["prompt_tokens_details"]["cached_tokens"] == 32
    assert metrics.value("vllm:prompt_tokens_total") == 80 - hits  # those computed


def test_preemptions(tiny_folder: Path) -> None:
    """A cache that is too small for all: some are sent back, and that is counted."""
    engine = load_engine(str(tiny_folder), kv_cache_bytes=520 * 512)
    with serving(engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            asked: dict[str, Any] = {"max_tokens": 120, "ignore_eos": True, "n": 8}
            assert wire.complete(**asked)["usage"]["completion_tokens"] == 960
            metrics = wire.metrics()
            assert metrics.value("vllm:num_preemptions_total") > 0
            assert metrics.is_idle


@pytest.mark.parametrize(
    ("temperature", "band"),
    [(0, "0"), (0.01, "0-0.3"), (0.3, "0-0.3"), (0.31, "0.3-0.7"), (0.7, "0.3-0.7"),
     (0.8, "0.7-1"), (1, "0.7-1"), (1.01, "1+"), (100, "1+")],
)  # fmt: skip
def test_bands_of_temperature(temperature: float, band: str) -> None:
    assert temperature_band(temperature) == band

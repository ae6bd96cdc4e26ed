"""Speculation: refuses what cannot be run, in one line, and reads vLLM's own JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from outdraft.errors import OptionError
from outdraft.speculation import MAX_K, OFF, OWN_METHODS, Speculation, check_own_method


def refusal(**settings: Any) -> str:
    with pytest.raises(OptionError) as caught:
        Speculation(**settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"method": "ngramm"}, ["'ngramm'", "did you mean 'ngram'", "draft_model", "suffix"]),
        ({"rule": "exact"}, ["'exact'", "coupled", "rejection", "typical"]),
        ({"quantization": "fp4"}, ["'fp4'", "none", "int8", "int4"]),
        ({"method": "draft_model"}, ["needs a draft", "--draft"]),
        ({"method": "medusa"}, ["needs a draft", "--draft"]),
        ({"k": 0}, ["got 0", "method off"]),
        ({"k": MAX_K + 1}, [str(MAX_K), f"got {MAX_K + 1}"]),
        ({"k": "5"}, ["k must be a whole number", "'5'"]),
        ({"k": 2.5}, ["k must be a whole number", "2.5"]),
        ({"prompt_lookup_min": 0}, ["prompt_lookup_min", "got 0 and 5"]),
        ({"prompt_lookup_min": 5, "prompt_lookup_max": 4}, ["got 5 and 4"]),
        ({"posterior_threshold": 0}, ["posterior_threshold", "got 0"]),
        ({"posterior_alpha": float("nan")}, ["posterior_alpha", "got nan"]),
        ({"schedule": ((2, 4, 3),)}, ["starts at 1", "got 2"]),
        ({"schedule": ((1, 4, 3), (4, 8, 2))}, ["[4, 8, 2]", "after 4"]),
        ({"schedule": ((3, 1, 3),)}, ["[3, 1, 3]", "not be before from"]),
        ({"schedule": ((1, 4, -1),)}, ["[1, 4, -1]", "k must not be negative"]),
        ({"schedule": ((1, 4),)}, ["[from, to, k]", "[1, 4]"]),
    ],
)
def test_refusals_name_the_value_and_the_remedy(settings: dict[str, Any], said: list[str]) -> None:
    message = refusal(**settings)
    for part in said:
        assert part in message


def test_reads_vllm_json() -> None:
    text = """{"method": "draft_model", "model": "some/draft", "num_speculative_tokens": 7,
               "draft_tensor_parallel_size": 2, "quantization": null,
               "num_speculative_tokens_per_batch_size": [[1, 4, 7], [5, 16, 2]]}"""
    assert Speculation.from_mapping(json.loads(text)) == Speculation(
        method="draft_model",
        draft="some/draft",
        k=7,
        schedule=((1, 4, 7), (5, 16, 2)),
        draft_tensor_parallel_size=2,
    )


def test_vllms_name_for_a_head() -> None:
    settings = {"method": "eagle3", "model": "some/head", "num_speculative_tokens": 3}
    assert Speculation.from_mapping(settings) == Speculation("eagle", k=3, draft="some/head")


@pytest.mark.parametrize("name", ["mtp", "deepseek_mtp", "qwen3_next_mtp"])
def test_vllms_names_for_layers_of_the_target(name: str) -> None:
    settings = {"method": name, "num_speculative_tokens": 1}
    assert Speculation.from_mapping(settings) == Speculation("mtp", k=1)


def test_methods_of_others_are_refused_by_our_engine_in_one_line() -> None:
    for method in OWN_METHODS:
        check_own_method(method)
    for method, engine in (("mtp", "vLLM or SGLang"), ("medusa", "vLLM")):
        with pytest.raises(OptionError) as caught:
            check_own_method(method)
        said = str(caught.value)
        assert said == (
            f"outdraft's engine has no method '{method}'; valid: off, ngram, suffix, draft_model, "
            f"eagle, auto; use {engine}, e.g. outdraft tune --engine vllm"
        )


def test_reads_vllm_ngram_json() -> None:
    settings = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "prompt_lookup_min": 3,
        "prompt_lookup_max": 6,
    }
    assert Speculation.from_mapping(settings) == Speculation(
        method="ngram", k=4, prompt_lookup_min=3, prompt_lookup_max=6
    )


@pytest.mark.parametrize(
    ("given", "low", "high"),
    [({"prompt_lookup_max": 1}, 1, 1), ({"prompt_lookup_min": 6}, 6, 6), ({}, 2, 5)],
)
def test_one_match_length_given_moves_the_other(given: dict[str, int], low: int, high: int) -> None:
    speculation = Speculation.from_mapping({"method": "ngram", **given})
    assert (speculation.prompt_lookup_min, speculation.prompt_lookup_max) == (low, high)


def test_a_model_without_a_method_is_a_draft_model() -> None:
    assert Speculation.from_mapping({"model": "d"}).method == "draft_model"
    assert Speculation.from_mapping({}) == OFF


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"num_spec_tokens": 3}, ["'num_spec_tokens'", "num_speculative_tokens", "k", "method"]),
        ({"model": "d", "draft_tensor_parallel_size": 0}, ["draft_tensor_parallel_size", "0"]),
        ({"method": "ngram", "k": 3, "num_speculative_tokens": 4}, ["both given"]),
        ({"method": "ngram", "num_speculative_tokens": "4"}, ["whole number", "'4'"]),
        ({"method": "ngram", "schedule": 5}, ["[from, to, k]", "5"]),
        ({"method": "ngram", "schedule": [3]}, ["[from, to, k]", "[3]"]),
    ],
)
def test_wrong_mappings_are_refused(settings: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        Speculation.from_mapping(settings)
    for part in said:
        assert part in str(caught.value)


def test_own_keys_round_trip() -> None:
    settings = {"method": "ngram", "k": 3, "rule": "typical", "schedule": [[1, 2, 3]]}
    assert Speculation.from_mapping(settings) == Speculation(
        method="ngram", k=3, rule="typical", schedule=((1, 2, 3),)
    )


def test_k_follows_the_schedule() -> None:
    speculation = Speculation(method="ngram", k=5, schedule=((1, 4, 8), (8, 15, 3), (16, 32, 0)))
    # More than k is clamped; a gap (5 to 7) and the time after the last entry carry on.
    expected = {1: 5, 4: 5, 5: 5, 7: 5, 8: 3, 15: 3, 16: 0, 32: 0, 99: 0}
    assert {running: speculation.k_at(running) for running in expected} == expected
    assert Speculation(method="ngram", k=5).k_at(1000) == 5
    assert OFF.k_at(1) == 0


def test_only_a_typical_rule_in_use_is_lossy() -> None:
    assert Speculation(method="ngram", rule="typical").is_lossy
    assert not Speculation(method="ngram", rule="rejection").is_lossy
    assert not Speculation(method="off", rule="typical").is_lossy


def test_another_k() -> None:
    assert replace(Speculation(method="ngram", k=5), k=2) == Speculation(method="ngram", k=2)
    with pytest.raises(OptionError, match="got 0"):
        replace(OFF, k=0)

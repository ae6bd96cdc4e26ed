"""A request's own `speculation`, and what it is told of it."""

from __future__ import annotations

from typing import Any

import pytest

from outdraft.engine.engine import Engine
from tests.server.serving import serving
from tests.server.wire import CHAT, COMPLETIONS, FEW, Wire

ASKED: dict[str, Any] = {"temperature": 0, "max_tokens": 40, "logit_bias": FEW, "ignore_eos": True}
PATHS = pytest.mark.parametrize("path", [COMPLETIONS, CHAT])


def told(wire: Wire, path: str = COMPLETIONS, **body: Any) -> dict[str, Any]:
    answer = wire.ask(path, **{**ASKED, **body}, include_metrics=True)
    found: dict[str, Any] = answer["metrics"]["speculative_decoding"]
    return found


@PATHS
def test_metrics_come_when_asked_for(wire: Wire, path: str) -> None:
    assert "metrics" not in wire.ask(path, **ASKED)
    metrics = wire.ask(path, **ASKED, n=2, include_metrics=True)["metrics"]
    assert set(metrics) == {
        "queue_time_ms", "time_to_first_token_ms", "generation_time_ms", "mean_itl_ms",
        "tokens_per_second", "speculative_decoding",
    }  # fmt: skip
    assert all(metrics[name] > 0 for name in metrics if name != "speculative_decoding")
    found = metrics["speculative_decoding"]
    assert 0 < found["num_accepted_draft_tokens"] < found["num_draft_tokens"]
    # The first token of each choice is the prompt's; every round writes one and what it accepted.
    num_rounds = found["num_spec_steps"] + found["num_steps_without_draft"]
    assert 2 + num_rounds + found["num_accepted_draft_tokens"] == 80


@PATHS
@pytest.mark.parametrize("with_usage", [False, True])
def test_metrics_end_a_stream(wire: Wire, path: str, with_usage: bool) -> None:
    """In the last event, whichever that is."""
    options = {"include_usage": with_usage}
    asked = {**ASKED, "n": 2, "include_metrics": True, "stream_options": options}
    *events, last = wire.events(path, **asked)
    assert not any("metrics" in event for event in events)
    assert last["metrics"]["speculative_decoding"] == told(wire, path, n=2)
    assert (last["choices"] == []) == with_usage


def test_metrics_with_every_answer(tiny_engine: Engine) -> None:
    with serving(tiny_engine, always_metrics=True) as (url, _):
        wire = Wire(url)
        with wire.client:
            assert "metrics" in wire.complete(max_tokens=2)


@PATHS
@pytest.mark.parametrize("override", [{"method": "off"}, {"k": 0}, {"method": "off", "k": 0}])
def test_off_drafts_nothing(wire: Wire, path: str, override: dict[str, Any]) -> None:
    found = told(wire, path, speculation=override)
    assert (found["num_draft_tokens"], found["num_spec_tokens"]) == (0, 0)
    assert found["num_steps_without_draft"] == 39
    assert told(wire, path)["num_draft_tokens"] > 0


def test_off_counts_no_drafts_at_the_server(wire: Wire) -> None:
    name = "vllm:spec_decode_num_draft_tokens_total"
    before = wire.metrics().value(name)
    wire.complete(**ASKED, speculation={"method": "off"})
    assert wire.metrics().value(name) == before
    wire.complete(**ASKED)
    assert wire.metrics().value(name) > before


@PATHS
@pytest.mark.parametrize("k", [1, 2, 3, 9])
def test_k_bounds_every_draft(wire: Wire, path: str, k: int) -> None:
    """More than the server's own 4 too."""
    found = told(wire, path, speculation={"k": k})
    assert found["num_spec_tokens"] == k
    assert len(found["acceptance_histogram"]) == k + 1  # the longest draft, and 0
    assert found["num_draft_tokens"] <= k * found["num_spec_steps"]


@PATHS
def test_the_text_is_the_same_with_any_override(wire: Wire, path: str) -> None:
    asked = {**ASKED, "temperature": 0.9, "seed": 5}
    overrides = (None, {}, {"method": "ngram"}, {"method": "off"}, {"k": 1}, {"k": 7})
    choices = [wire.ask(path, **asked, speculation=each)["choices"] for each in overrides]
    assert choices == choices[:1] * len(overrides)


@PATHS
@pytest.mark.parametrize(
    "override",
    [{"method": "suffix"}, {"method": "warp"}, {"method": "off", "k": 3}, {"k": -1}, {"k": 65},
     {"k": "3"}, {"method": 3}, "off", 3, []],
    ids=str,
)  # fmt: skip
def test_what_no_request_can_have(wire: Wire, path: str, override: Any) -> None:
    assert wire.refused(path, speculation=override)["param"] == "speculation"


def test_unknown_settings_are_named(wire: Wire) -> None:
    error = wire.refused(COMPLETIONS, speculation={"draft_length": 3})
    assert error["param"] == "speculation.draft_length"


def test_a_server_without_speculation(plain_wire: Wire) -> None:
    for override in ({"k": 3}, {"method": "ngram"}, {"method": "ngram", "k": 3}):
        assert plain_wire.refused(COMPLETIONS, speculation=override)["param"] == "speculation"
    for harmless in ({"method": "off"}, {"k": 0}, {}):
        found = told(plain_wire, speculation=harmless)
        assert (found["num_draft_tokens"], found["num_spec_tokens"]) == (0, 0)

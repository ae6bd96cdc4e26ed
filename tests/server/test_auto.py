"""A server with method auto: the same texts, who drafted, objectives of speed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outdraft import Speculation, load_engine
from tests.server.serving import serving
from tests.server.wire import COMPLETIONS, FEW, Wire, asked, error_of

ASKED: dict[str, Any] = {"max_tokens": 40, "logit_bias": FEW, "ignore_eos": True, "seed": 4}


@pytest.fixture(scope="module")
def auto(tiny_folder: Path) -> Iterator[Wire]:
    engine = load_engine(str(tiny_folder), Speculation("auto"), kv_cache_bytes=8 << 20)
    with serving(engine) as (url, _):
        wire = Wire(url)
        with wire.client:
            yield wire


@pytest.mark.parametrize("temperature", [0, 0.8])
def test_the_text_is_that_of_a_plain_server(
    auto: Wire, plain_wire: Wire, temperature: float
) -> None:
    body = {**ASKED, "temperature": temperature, "n": 3}
    answers = [
        wire.ask(COMPLETIONS, prompt="one two one two one two", **body)["choices"]
        for wire in (auto, plain_wire)
    ]
    texts = [[choice["text"] for choice in choices] for choices in answers]
    assert texts[0] == texts[1]


def test_who_drafted_is_counted(auto: Wire) -> None:
    answer = auto.ask(COMPLETIONS, **ASKED, temperature=0, include_metrics=True)
    metrics = auto.metrics()
    drafted = metrics.by("outdraft:proposer_draft_tokens_total", "proposer")
    accepted = metrics.by("outdraft:proposer_accepted_tokens_total", "proposer")
    assert set(drafted) == set(accepted) == {"suffix"}  # it finds what "ngram" does
    assert sum(drafted.values()) == metrics.value("vllm:spec_decode_num_draft_tokens_total")
    assert all(accepted[name] <= drafted[name] for name in drafted)
    by_proposer = metrics.by("outdraft:proposer_rounds_total", "proposer")
    assert set(by_proposer) <= {"suffix", "none"}
    assert answer["metrics"]["speculative_decoding"]["num_spec_tokens"] == 16


def test_an_objective_is_taken_or_refused(auto: Wire, wire: Wire) -> None:
    for each in (auto, wire):  # without auto it changes nothing
        for right in ({"tpot_ms": 30}, {"e2e_ms": 900}, {"tpot_ms": 30, "e2e_ms": 900}):
            assert each.ask(COMPLETIONS, **ASKED, slo=right)["choices"]
        for wrong in ({"tpot_ms": 0}, {"e2e_ms": "30"}, {}, {"ttft_ms": 3}, 30):
            body = asked(COMPLETIONS, {**ASKED, "slo": wrong})
            assert "slo" in error_of(each.client.post(COMPLETIONS, json=body), 400)["message"]

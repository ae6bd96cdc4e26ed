"""The stand-in for SGLang: its flags and its wire. tests/engines holds it to the real one."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from outdraft.observe import parse_page
from outdraft.testing.fake_answers import FakeMetrics
from outdraft.testing.fake_script import Script, ScriptedRequest
from outdraft.testing.fake_server import FakeServer
from tests.backends.fake_sglang import main, parser

REQUEST = ScriptedRequest("p", 0.0, 41, seed=1, ignore_eos=True, number=0, num_running=1)


def chat(url: str, **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "two words"}], "max_tokens": 9, **fields}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=10) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


@pytest.mark.parametrize(
    "words",
    [
        ["--model-path", "x", "--speculative-no-such", "1"],
        ["--model-path", "x", "--speculative-algorithm", "MEDUSA"],
        ["--model-path", "x", "--speculative-num-steps", "many"],
        ["--port", "1"],
    ],
)
def test_flags_that_sglang_refuses(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(words)


def test_a_method_with_a_draft_needs_one() -> None:
    with pytest.raises(ValueError, match="draft-model-path"):
        main(["--model-path", "x", "--speculative-algorithm", "EAGLE3"])


def test_its_page_counts_rounds_and_tells_the_length_late() -> None:
    metrics = FakeMetrics(k=3, kv_slots=8)
    played = Script(k=3, acceptance=0.0).play(REQUEST)  # a token a round, and one before the first
    metrics.observe(played, 5)
    page = parse_page(metrics.render("sglang").decode())
    assert page["sglang:spec_verify_calls_total"] == 40
    assert page["sglang:generation_tokens_total"] == 41
    assert page["sglang:spec_num_draft_tokens"] == 4
    metrics.log_interval = 41
    assert parse_page(metrics.render("sglang").decode())["sglang:spec_num_draft_tokens"] == 0


def test_its_page_without_speculation() -> None:
    metrics = FakeMetrics(k=0, kv_slots=8)
    metrics.observe(Script().play(REQUEST), 5)
    page = parse_page(metrics.render("sglang").decode())
    assert page["sglang:spec_num_draft_tokens"] == 0
    assert "sglang:spec_verify_calls_total" not in page


def test_a_whole_answer_says_what_was_accepted_when_asked() -> None:
    script = Script(ttft_s=0, tpot_s=0, k=3, acceptance=1.0)
    with FakeServer(script, dialect="sglang", whole_answers=True, model="m") as server:
        plain = chat(server.url)
        told = chat(server.url, return_spec_tokens_details=True)
        assert server.metrics.num_running == 0
    assert len(plain["choices"][0]["message"]["content"].split()) == 9
    assert plain["usage"]["completion_tokens"] == 9
    assert "sglext" not in plain
    assert told["sglext"]["spec_tokens_details"]["spec_num_correct_drafts"] == 6

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outdraft.acceptance import Acceptance
from outdraft.records import Record, Trial, trial_from_json

DONE = Record(
    prompt_id="chat-001",
    category="chat",
    temperature=0.7,
    arm="off",
    block=2,
    index=5,
    scheduled_ns=1_000,
    sent_ns=1_500,
    first_ns=51_000,
    last_ns=351_000,
    chunk_ns=(51_000, 351_000),
    prompt_tokens=12,
    completion_tokens=31,
    finish_reason="stop",
    acceptance=Acceptance(10, 40, 20, 0, [8, 7, 5], [10, 10, 10]),
    text="hello",
)


def test_times_count_from_when_it_was_due() -> None:
    assert DONE.lag_ns == 500
    assert DONE.ttft_ns == 50_000
    assert DONE.e2e_ns == 350_000
    assert DONE.tpot_ns == 10_000


def test_one_token_has_no_time_per_token() -> None:
    assert replace(DONE, completion_tokens=1).tpot_ns is None
    assert replace(DONE, completion_tokens=None).tpot_ns is None


def test_what_did_not_happen_is_none() -> None:
    failed = Record("p", "chat", 0.0, "off", 0, 0, scheduled_ns=5, error="refused")
    assert not failed.ok
    assert (failed.lag_ns, failed.ttft_ns, failed.e2e_ns, failed.tpot_ns) == (None,) * 4


def test_acceptance() -> None:
    assert DONE.acceptance is not None
    assert DONE.acceptance.rate == 0.5
    assert DONE.acceptance.length == 3.0
    assert Acceptance(0, 0, 0).rate is None


def test_json_and_back() -> None:
    trial = Trial(
        "off", "http://x", {"concurrency": 4}, (DONE, replace(DONE, acceptance=None)), "t"
    )
    assert trial_from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_another_schema_is_refused() -> None:
    trial = Trial("off", "http://x", {}, (), "t")
    with pytest.raises(ValueError, match="schema 99"):
        trial_from_json({**trial.to_json(), "schema": 99})

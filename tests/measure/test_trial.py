from __future__ import annotations

import json
import os
import signal

import pytest

from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.summary import summarize
from outdraft.measure.trial import run_trial
from outdraft.records import Record, trial_from_json
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import Failure, FakeServer
from outdraft.workload.arrivals import ramp
from outdraft.workload.plan import plan_requests
from outdraft.workload.sets import built_in

PROMPTS = built_in()
PLAN = plan_requests(PROMPTS[:12], mix=((0.0, 1.0),), seed=0, max_tokens=9)
WARM = plan_requests(PROMPTS[12:15], mix=((0.0, 1.0),), seed=1, max_tokens=9)
SPECULATING = Script(ttft_s=0.02, tpot_s=0.001, k=4, acceptance=0.7)


def test_warm_up_records_and_counters() -> None:
    with FakeServer(SPECULATING) as server:
        # What the server counted before is not the trial's.
        run_trial(Endpoint(server.url), WARM, arm="x", load={}, concurrency=3)
        trial, quality = run_trial(
            Endpoint(server.url),
            PLAN,
            arm="ngram",
            load={"concurrency": 4},
            concurrency=4,
            warmup=WARM,
        )
    assert [each.is_warmup for each in trial.records] == [True] * 3 + [False] * 12
    assert {each.block for each in trial.records if each.is_warmup} == {-1}
    assert quality.num_requests == 12
    assert quality.num_errors == 0
    assert (trial.arm, trial.url, trial.load) == ("ngram", server.url, {"concurrency": 4})
    measured = [each for each in trial.records if not each.is_warmup]
    tokens = sum(each.completion_tokens or 0 for each in measured)
    assert trial.server_metrics["vllm:generation_tokens_total"] == tokens == 12 * 9
    accepted = sum(each.acceptance.num_accepted_tokens for each in measured if each.acceptance)
    assert trial.server_metrics["vllm:spec_decode_num_accepted_tokens_total"] == accepted > 0
    assert trial.server_metrics["vllm:num_preemptions_total"] == 0
    usage = [trial.server_metrics[f"kv_cache_usage_{each}"] for each in ("mean", "max")]
    assert 0 <= usage[0] <= usage[1] <= 1
    assert {"outdraft", "python", "cpu", "server_version"} <= trial.environment.keys()
    assert trial_from_json(json.loads(json.dumps(trial.to_json()))) == trial


def test_requests_at_their_times() -> None:
    plan = plan_requests(
        PROMPTS[:6], mix=((0.0, 1.0),), seed=0, max_tokens=2, offsets_ns=ramp(50, 50, 6)
    )
    with FakeServer(SPECULATING) as server:
        trial, _ = run_trial(
            Endpoint(server.url), plan, arm="x", load={"rate": 50}, concurrency=None, warmup=WARM
        )
    due = [each.scheduled_ns for each in trial.records if not each.is_warmup]
    assert [at - due[0] for at in due] == [20_000_000 * n for n in range(6)]


@pytest.mark.parametrize("kind", ["http_500", "cut", "malformed", "ends_early", "no_usage"])
def test_failures_are_counted_and_make_it_invalid_when_many(kind: Failure) -> None:
    with FakeServer(SPECULATING, failures={kind: 3}) as server:
        trial, quality = run_trial(Endpoint(server.url), PLAN, arm="x", load={}, concurrency=4)
    assert summarize(trial.records).num_errors == 4
    assert not trial.is_valid
    assert "4 of 12 requests failed (33.3%)" in trial.problems[0]
    assert quality.problems == trial.problems


def test_stopped_while_it_warms_up_nothing_more_is_sent() -> None:
    def stop(record: Record) -> None:
        os.kill(os.getpid(), signal.SIGINT)  # as Control-C does

    with FakeServer(SPECULATING) as server:
        trial, quality = run_trial(
            Endpoint(server.url), PLAN, arm="x", load={}, concurrency=1, warmup=WARM, sink=stop
        )
        assert server.metrics.num_requests <= len(WARM)
    assert not quality.is_valid
    assert all(each.is_warmup for each in trial.records)
    assert trial.records

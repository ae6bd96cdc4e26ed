"""A few comparisons over the wire, with times long enough for a busy machine to keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.errors import OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.compare import Settings, compare
from outdraft.records import Record
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url
from outdraft.workload.sets import built_in

SLOW = Script(ttft_s=0.2, tpot_s=0.02, prompt_spread=0.1)
FAST = replace(SLOW, k=3, acceptance=0.8, speedup=4.0)
SETTINGS = Settings(max_requests=20, block_size=4, concurrency=4, max_tokens=8)
PROMPTS = [each for each in built_in() if each.category == "code"]


def test_a_faster_server_is_found_to_be() -> None:
    """200 + 7 x 20 ms against 200 + 7 x 5: 1.45 times as fast."""
    with fake_server(SLOW) as off, FakeServer(FAST) as on:
        outcome = compare(Endpoint(off), Endpoint(on.url), PROMPTS, SETTINGS)
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "SHIP", outcome.verdict.reasons
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    assert 1.2 < outcome.evidence.e2e.estimate < 1.6
    assert outcome.evidence.equivalence is not None
    assert outcome.evidence.equivalence.share == 1, "texts do not depend on speculation"
    assert outcome.evidence.acceptance is not None
    assert outcome.evidence.acceptance.rate > 0.4
    assert len(on.bodies) == 24
    assert all(body["messages"][0]["content"].startswith("[") for body in on.bodies)


def test_a_server_that_dies_on_the_way() -> None:
    """What it had answered is there, all the rest is counted, and it is no verdict."""
    quick = Script(ttft_s=0.02, tpot_s=0)
    with fake_server(quick) as off, FakeServer(quick) as on:
        seen: list[Record] = []

        def count(record: Record) -> None:
            seen.append(record)
            if len(seen) == 20:
                on.stop()

        outcome = compare(Endpoint(off), Endpoint(on.url), PROMPTS, SETTINGS, sink=count)
    assert len(seen) == len(outcome.records) == 40
    assert outcome.num_blocks == 4, "two whole blocks without an answer are enough"
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "INCONCLUSIVE"
    told = " | ".join(outcome.verdict.reasons)
    assert "the run is invalid" in told
    assert "refused × " in told
    assert outcome.evidence is not None
    assert 0.2 < outcome.evidence.error_rate < 0.5


def test_nobody_there_at_all() -> None:
    ends = Endpoint(refusing_url()), Endpoint(refusing_url())
    with pytest.raises(OutdraftError, match=r"baseline at .*: every request .* failed \(refused"):
        compare(*ends, PROMPTS, SETTINGS)

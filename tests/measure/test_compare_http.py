"""A few comparisons over the wire."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft import Speculation, load_engine
from outdraft.errors import BackendError, OutdraftError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.compare import compare
from outdraft.measure.comparison import ComparisonSettings
from outdraft.observe import RemoteServer
from outdraft.records import Record
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer, fake_server, refusing_url
from outdraft.testing.tiny_models import tiny_model
from outdraft.workload.sets import built_in
from tests.server.serving import serving

from .patient import be_patient

SLOW = Script(ttft_s=0.05, tpot_s=0.005, prompt_spread=0.1)
FAST = replace(SLOW, k=3, acceptance=0.8, speedup=4.0)
SETTINGS = ComparisonSettings(max_requests=20, block_size=4, concurrency=2, max_tokens=8)
PROMPTS = [each for each in built_in() if each.category == "code"]


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    be_patient(monkeypatch)


def test_a_faster_server_is_found_to_be() -> None:
    """50 + 7 x 5 ms against 50 + 7 x 1.25: 1.45 times as fast."""
    with fake_server(SLOW) as off, FakeServer(FAST) as on:
        outcome = compare(Endpoint(off), Endpoint(on.url), PROMPTS, SETTINGS)
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "SHIP", outcome.verdict.reasons
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    assert 1.2 < outcome.evidence.e2e.estimate < 1.6
    assert outcome.evidence.texts is not None
    assert outcome.evidence.texts.share == 1, "texts do not depend on speculation"
    assert outcome.evidence.acceptance is not None
    assert outcome.evidence.acceptance.rate > 0.4
    marks = [body["messages"][0]["content"].partition("] ")[0] for body in on.bodies]
    assert all(mark.startswith("[") for mark in marks)
    assert len(set(marks)) == len(marks) >= 6 * (4 + 2), "two leads in each block"
    assert sum(int(mark.rpartition("-")[2]) < 4 for mark in marks) == 24


def test_junk_at_twice_the_speed_is_not_shipped() -> None:
    """20 + 7 x 10 ms against 20 + 7 x 2.5: more than twice as fast."""
    slow, few = (
        Script(ttft_s=0.02, tpot_s=0.01),
        replace(SETTINGS, max_requests=10, block_size=2, concurrency=1),
    )
    with fake_server(slow) as off, fake_server(replace(slow, speedup=4, is_junk=True)) as on:
        outcome = compare(Endpoint(off), Endpoint(on), PROMPTS, few)
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "DON'T SHIP", outcome.verdict.reasons
    assert outcome.verdict.reasons[0] == (
        "the candidate writes other texts: 0 of 10 greedy texts are the baseline's; its own, sent "
        "again, 10 of 10"
    )
    assert "e.g. prompt 'code-" in outcome.verdict.reasons[1]
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    assert outcome.evidence.e2e.estimate > 1.2


def test_our_own_server_writes_what_it_writes_without_speculation(tmp_path: Path) -> None:
    folder = str(tiny_model(tmp_path / "tiny", "llama"))
    one, other = (
        load_engine(folder, speculation, kv_cache_bytes=16 << 20)
        for speculation in (Speculation("off"), Speculation("ngram", k=3))
    )
    short = replace(SETTINGS, max_tokens=16)
    with serving(one) as (off, _), serving(other) as (on, _):
        outcome = compare(Endpoint(off), Endpoint(on), PROMPTS, short)
    assert outcome.evidence is not None
    assert outcome.evidence.texts is not None
    assert (outcome.evidence.texts.num_identical, outcome.evidence.texts.num_compared) == (20, 20)


def test_a_server_that_dies_on_the_way() -> None:
    """What it had answered is there, all the rest is counted, and it is no verdict."""
    quick = Script(ttft_s=0.02, tpot_s=0)
    with fake_server(quick) as off, FakeServer(quick) as on:
        seen: list[Record] = []

        def count(record: Record) -> None:
            seen.append(record)
            if len(seen) == 30:
                on.stop()

        outcome = compare(Endpoint(off), Endpoint(on.url), PROMPTS, SETTINGS, sink=count)
    assert len(seen) == len(outcome.records) == 60
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


def test_a_server_that_stops_forgetting_is_said_to_remember(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second block on: the warm-up and the first block were still forgotten."""
    engine = load_engine(str(tiny_model(tmp_path / "tiny", "llama")), kv_cache_bytes=8 << 20)
    asked: list[str] = []
    forget = RemoteServer.forget

    def forget_thrice(server: RemoteServer) -> None:
        asked.append(server.url)
        if len(asked) > 3:
            raise BackendError("503")
        forget(server)

    monkeypatch.setattr(RemoteServer, "forget", forget_thrice)
    with fake_server(Script(ttft_s=0.001, tpot_s=0)) as off, serving(engine, can_forget=True) as on:
        settings = replace(SETTINGS, max_tokens=2)
        outcome = compare(Endpoint(off), Endpoint(on[0]), PROMPTS[:8], settings)
    assert outcome.evidence is not None
    told = " | ".join(outcome.evidence.problems)
    assert f"{2 * (20 - 8 + 4)} of 40 requests repeat a prompt that was answered before" in told
    assert len(asked) == 4, "it is not asked again"


@pytest.mark.parametrize("keep_memory", [False, True])
def test_prompts_that_come_again_are_said_or_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_memory: bool
) -> None:
    """Our own server as the candidate forgets between blocks; the other one has to be believed."""
    folder = tiny_model(tmp_path / "tiny", "llama")
    engine = load_engine(str(folder), Speculation("suffix", k=2), kv_cache_bytes=8 << 20)
    forgotten: list[float] = []
    forget = engine.forget
    monkeypatch.setattr(engine, "forget", lambda: (forgotten.append(0), forget()))
    settings = replace(SETTINGS, max_tokens=2, keep_memory=keep_memory)
    with fake_server(Script(ttft_s=0.001, tpot_s=0)) as off, serving(engine, can_forget=True) as on:
        forgotten.clear()
        outcome = compare(Endpoint(off), Endpoint(on[0]), PROMPTS[:8], settings)
    assert outcome.evidence is not None
    told = " | ".join(outcome.evidence.problems)
    assert ("answers of earlier requests were remembered" in told) is keep_memory
    num_repeats = 2 * 20 - 8 * 2 + 2 * 4 if keep_memory else 20 - 8 + 4
    assert f"{num_repeats} of 40 requests repeat a prompt that was answered before" in told
    num_loads = 1 + outcome.num_blocks  # the warm-up too
    assert len(forgotten) == (0 if keep_memory else 1 + num_loads)

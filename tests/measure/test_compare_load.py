"""The load that is named is the load that is applied, and the truth under that load is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outdraft.errors import OptionError
from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.measure.block_size import fitting_block
from outdraft.measure.compare import compare
from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.measure.evidence import make_evidence
from outdraft.testing.fake_script import Script
from outdraft.testing.fake_server import FakeServer
from outdraft.workload.plan import make_blocks
from outdraft.workload.prompt import Message, Prompt

from .batching import Batching, Seconds
from .simulated import BASELINE, CANDIDATE

# Answers of 24 to 71 tokens
PROMPTS = [
    Prompt(f"p{n}", "chat", (Message("user", f"subject {n}"),), 24 + 7 * n % 48) for n in range(600)
]
CROWD = 16
Compared = Callable[..., Comparison]


def off(running: int) -> float:
    return 0.010 + 0.0005 * running


def on(running: int) -> float:
    """Faster than `off` alone, slower in a crowd: speculation as it is on a small model."""
    return 0.006 + 0.0009 * running


TRUTH = off(CROWD) / on(CROWD)  # 0.88


def servers(baseline: Seconds = off, candidate: Seconds = on) -> Batching:
    return Batching({BASELINE.url: baseline, CANDIDATE.url: candidate})


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Compared:
    def run(load: Batching, **settings: Any) -> Comparison:
        monkeypatch.setattr("outdraft.measure.compare.run_load", load)
        monkeypatch.setattr("outdraft.observe.RemoteServer.metrics", lambda server: {})
        return compare(BASELINE, CANDIDATE, PROMPTS, ComparisonSettings(**settings))

    return run


def test_a_block_in_step_flatters_what_is_fast_alone() -> None:
    """Without leads and fillers, the requests of a block run out one after the other, and the last
    have the server for themselves."""
    load = servers()
    blocks = make_blocks(PROMPTS, size=CROWD, count=6, mix=((0.0, 1.0),), seed=0)
    arms = [
        [
            record
            for block in range(6)
            for record in load(end, make_requests(blocks.requests(block), block=block),
                               concurrency=CROWD).records
        ]
        for end in (BASELINE, CANDIDATE)
    ]  # fmt: skip
    found = make_evidence(arms[0], arms[1], level=0.95, margin=0.01)
    assert found.throughput is not None
    assert found.throughput.estimate > 1.08 * TRUTH
    assert found.e2e is not None
    assert (found.e2e.low or 0) > 1.03 * TRUTH


def test_on_the_plateau_the_truth_is_found_and_a_loss_is_a_loss(compared: Compared) -> None:
    outcome = compared(servers(), concurrency=CROWD)
    assert outcome.evidence is not None
    throughput, e2e = outcome.evidence.throughput, outcome.evidence.e2e
    assert throughput is not None
    assert throughput.estimate == pytest.approx(TRUTH, rel=0.005)
    assert e2e is not None
    assert e2e.estimate == pytest.approx(TRUTH, rel=0.01)
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "DON'T SHIP"
    assert "with 16 at a time the server writes clearly less: that is a loss" in (
        outcome.verdict.reasons
    )


def test_alone_the_same_server_wins(compared: Compared) -> None:
    outcome = compared(servers(), concurrency=1)
    assert outcome.evidence is not None
    assert outcome.evidence.e2e is not None
    assert outcome.evidence.e2e.estimate == pytest.approx(off(1) / on(1), rel=0.001)
    assert outcome.verdict is not None
    assert outcome.verdict.decision == "SHIP"


class TestBlockSize:
    @pytest.mark.parametrize(
        ("concurrency", "answer_s", "size"),
        [
            (1, 3.0, 12),  # twelve at least
            (1, 0.1, 30),  # three seconds
            (1, 0.001, 64),  # and not more than that
            (4, 0.5, 24),
            (64, 2.0, 192),  # three for each slot at least
            (64, 0.5, 384),
            (64, 0.01, 1024),  # sixteen at most
        ],
    )
    def test_by_the_time_of_an_answer(self, concurrency: int, answer_s: float, size: int) -> None:
        assert fitting_block(concurrency, answer_s) == size

    def test_it_follows_the_faster_arm_and_is_set_before_the_first_block(
        self, compared: Compared
    ) -> None:
        """An answer of 48 tokens takes 0.86 s in the baseline and 0.98 s in the candidate."""
        load = servers()
        outcome = compared(load, concurrency=CROWD)
        size = outcome.settings.block_size
        assert size == pytest.approx(3 * CROWD / (48 * off(CROWD)), abs=6)
        assert load.sizes[:2] == [(2 + 5) * CROWD] * 2, "the warm-up"
        assert set(load.sizes[2:]) == {size + CROWD + 4 * CROWD}
        assert outcome.settings.max_blocks == 20
        assert outcome.evidence is not None
        assert not any("--requests" in each for each in outcome.evidence.problems)
        counted = [each for each in outcome.of("candidate") if not each.is_warmup]
        first = [each for each in counted if each.block == 0]
        assert (first[-1].scheduled_ns - first[0].scheduled_ns) / 1e9 == pytest.approx(3, rel=0.2)

    def test_few_requests_make_small_blocks_and_it_is_said(self, compared: Compared) -> None:
        outcome = compared(servers(), concurrency=CROWD, max_requests=200)
        assert outcome.settings.block_size == 40
        assert outcome.settings.max_blocks == 5
        assert outcome.verdict is not None
        told = " | ".join(outcome.verdict.reasons)
        assert "--requests 200 allows blocks of 40 requests; " in told
        assert "for 3 s of steady load in each" in told

    def test_what_cannot_hold_the_load_is_refused(self) -> None:
        with pytest.raises(OptionError, match="--block must be at least 128 there"):
            ComparisonSettings(block_size=127, concurrency=64)
        with pytest.raises(OptionError, match="--requests 240 is too few for 5 blocks with 64 run"):
            ComparisonSettings(max_requests=240, concurrency=64)
        ComparisonSettings(max_requests=640, block_size=128, concurrency=64)
        ComparisonSettings(max_requests=10, block_size=2, concurrency=1)


class TestRunning:
    """Over the wire: what a server itself says to be running."""

    script = Script(ttft_s=0.02, tpot_s=0.01, prompt_spread=0.2)

    def run(self, candidate: FakeServer, concurrency: int) -> Comparison:
        settings = ComparisonSettings(
            concurrency=concurrency,
            max_requests=10 * concurrency,
            block_size=2 * concurrency,
            max_tokens=12,
            num_looks=1,
        )
        with FakeServer(self.script) as baseline:
            ends = Endpoint(baseline.url), Endpoint(candidate.url)
            return compare(*ends, PROMPTS, settings)

    def test_as_many_run_as_the_load_names(self) -> None:
        with FakeServer(self.script) as candidate:
            outcome = self.run(candidate, CROWD)
        assert outcome.mean_running.keys() == {"baseline", "candidate"}
        for arm, running in outcome.mean_running.items():
            assert 0.9 * CROWD <= running.mean <= CROWD, arm
            assert len(outcome.running[arm]) == outcome.num_blocks
            assert running.low is not None
        assert outcome.evidence is not None
        assert not any("were running" in each for each in outcome.evidence.problems)

    @pytest.mark.slow
    def test_a_server_that_runs_fewer_is_said_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As one with a limit of its own does; here its count is half of the truth."""
        with FakeServer(self.script) as candidate:
            render = candidate.metrics.render

            def half(dialect: Any) -> bytes:
                running, candidate.metrics.num_running = (
                    candidate.metrics.num_running,
                    (candidate.metrics.num_running // 2),
                )
                page = render(dialect)
                candidate.metrics.num_running = running
                return page

            monkeypatch.setattr(type(candidate.metrics), "render", lambda _, dialect: half(dialect))
            outcome = self.run(candidate, 4)
        assert outcome.evidence is not None
        told = " | ".join(outcome.evidence.problems)
        assert "of 4 requests were running, as the server counts" in told

"""Results of `bench` and `compare` made by hand, and their pages."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR, Verdict, decide
from outdraft.measure.bench import Bench, BenchLoad
from outdraft.measure.summary import summarize
from outdraft.records import Record, Trial
from outdraft.report.bench_page import bench_page
from outdraft.report.compare_page import ComparedRun, compare_page
from outdraft.stats.ratios import Ratio
from tests.measure.made import accepted, done, failed

HOSTILE = "<script>alert(1)</script>\"'&"


def load_of(
    concurrency: int, seed: int = 0, *, turns: int = 1, category: str = "chat", **fields: Any
) -> BenchLoad:
    draw = random.Random(seed)
    records = [
        done(
            at,
            e2e=draw.gauss(1000, 80) * max(concurrency / 8, 1),
            at=100 * at / concurrency,
            prompt_tokens=100 + 50 * (at % turns),
            category=category,
            turn=at % turns,
            acceptance=accepted(4, 8, 4, (3, 4), (1, 4)),
        )
        for at in range(48)
    ]
    metrics = {"kv_cache_usage_max": 0.4, "running_requests_mean": concurrency,
               "gpu0_memory_gib_max": 31.5, "gpu0_busy_share_mean": 0.8}  # fmt: skip
    trial = Trial(
        "server", "http://127.0.0.1:8000", {"concurrency": concurrency, "requests": 48},
        tuple(records), "2026-11-16T12:00:00", {"server_engine": "vllm", "cpu": "a CPU"}, metrics,
    )  # fmt: skip
    trial = replace(trial, **fields)
    return BenchLoad(f"concurrency {concurrency}", trial, summarize(trial.records, {"ttft": 200}))


def sweep() -> Bench:
    return Bench(tuple(load_of(each) for each in (1, 8, 16, 32)))


def invalid_sessions() -> Bench:
    good = load_of(2, turns=3)
    records = (*good.trial.records, failed(48))
    trial = replace(good.trial, records=records, is_valid=False, problems=("it was too slow",))
    return Bench((BenchLoad("concurrency 2", trial, summarize(records)),))


def unanswered() -> Bench:
    trial = replace(load_of(2).trial, records=(failed(0), failed(1)), server_metrics={},
                    environment={}, is_valid=False)  # fmt: skip
    return Bench((BenchLoad("concurrency 2", trial, summarize(trial.records)),))


def hostile_bench() -> Bench:
    load = load_of(2, category=HOSTILE, url=f"http://{HOSTILE}", problems=(HOSTILE,),
                   environment={"server_engine": HOSTILE, HOSTILE: HOSTILE})  # fmt: skip
    return Bench((load, load_of(4)))


def ratio(estimate: float, spread: float = 0.05) -> Ratio:
    return Ratio(estimate, estimate - spread, estimate + spread, 0.95, 240, 20)


def run_of(decision: str, **fields: Any) -> ComparedRun:
    evidence = Evidence(
        e2e=ratio(1.3),
        tpot=ratio(1.35),
        ttft=ratio(0.98),
        throughput=ratio(1.28),
        by_category={"chat": ratio(1.1), "code": ratio(1.6, 0.2)},
        acceptance=AcceptanceSummary(rate=0.6),
    )
    made = decide(replace(evidence, **fields))
    verdict = Verdict(decision, made.ship_for, made.reasons or ("a reason",), made.checks)
    records: dict[str, list[Record]] = {
        name: [replace(each, arm=name) for each in load_of(4, seed).trial.records]
        for seed, name in enumerate(("baseline", "candidate"))
    }
    return ComparedRun("http://a:1", "http://b:1", evidence, verdict, records, {"seed": 0},
                       {"cpu": "a CPU"}, "2026-11-16T12:00:00")  # fmt: skip


def hostile_run() -> ComparedRun:
    return replace(run_of(SHIP), candidate=HOSTILE, settings={HOSTILE: HOSTILE})


def nothing_compared() -> ComparedRun:
    empty: dict[str, list[Record]] = {"baseline": [], "candidate": []}
    return replace(run_of(INCONCLUSIVE), evidence=Evidence(e2e=None), records=empty)


OTHER_PAGES: dict[str, Callable[[], str]] = {
    "bench": lambda: bench_page(sweep()),
    "bench_of_one_load": lambda: bench_page(Bench((load_of(4),))),
    "bench_invalid": lambda: bench_page(invalid_sessions()),
    "bench_unanswered": lambda: bench_page(unanswered()),
    "bench_hostile": lambda: bench_page(hostile_bench()),
    "compare": lambda: compare_page(run_of(SHIP)),
    "compare_parts": lambda: compare_page(run_of(SHIP_FOR)),
    "compare_slower": lambda: compare_page(run_of(DONT_SHIP)),
    "compare_open": lambda: compare_page(run_of(INCONCLUSIVE)),
    "compare_hostile": lambda: compare_page(hostile_run()),
    "compare_nothing": lambda: compare_page(nothing_compared()),
}

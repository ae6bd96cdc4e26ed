"""What searches on planted engines decide, against what they decided before.

`decisions.jsonl` holds, for each case, the blocks in the order in which they were measured and what
came out, as an earlier version decided. After a change of the rules write it anew:

    OUTDRAFT_WRITE_DECISIONS=1 python -m pytest tests/tune/test_decisions.py
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.speculation import METHODS, Speculation
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.outcome import RunContext, make_results
from outdraft.tune.results import Results
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.search import Search

from .planted import Planted, Truth, arms_of

DECISIONS = Path(__file__).parent / "decisions.jsonl"
FLAT, POOR = Truth(chance=0.8, draft=0.08), Truth(chance=0.2, draft=0.3)
STEEP = Truth(chance=0.9, draft=0.02, verify=lambda tokens, running: 1 + 0.05 * (tokens - 1))
CROWDED = Truth(0.8, 0.02, lambda tokens, running: 1 + max(0, running * tokens - 32) / 16)
ONE, FOUR, MANY = Load(concurrency=1), Load(concurrency=4), Load(concurrency=32)
SOME = arms_of(("ngram", "eagle"), range(2, 5))
ALL = arms_of(("ngram", "draft_model", "eagle"), range(2, 9))
QUANTIZED = tuple(
    replace(arm, quantization=each)
    for arm in arms_of(("draft_model",), range(2, 7))
    for each in ("none", "int8")
)
Measure = Callable[[Load, Speculation, int], Block | Failure]


def uneven(planted: Planted) -> Measure:
    """Blocks take between 1 and 7 seconds, engines start in 3, some clients are unfit."""

    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        measured = planted.measure(load, arm, block)
        if isinstance(measured, Failure):
            return measured
        seconds = 1 + zlib.crc32(f"{name_of(arm)}/{block}".encode()) % 7
        start_s = 3.0 if block == 0 else 0.0
        is_unfit = zlib.crc32(f"{name_of(arm)}+{block}".encode()) % 11 == 0
        return replace(
            measured,
            duration_s=seconds + start_s,
            start_s=start_s,
            problems=("busy client",) if is_unfit else (),
        )

    return measure


def failing(planted: Planted) -> Measure:
    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        if name_of(arm) == "eagle head k=7" and block >= 4:
            return Failure(load.name, name_of(arm), "died", 2.0)
        return planted.measure(load, arm, block)

    return measure


@dataclass(frozen=True)
class Case:
    truths: dict[str, Truth]
    arms: tuple[Speculation, ...]
    loads: tuple[Load, ...] = (ONE,)
    objective: Objective = field(default_factory=lambda: Objective("tpot"))
    budget_s: float = 1e6
    noise: float = 0.03
    wrap: Callable[[Planted], Measure] = lambda planted: planted.measure
    keeps_engines: bool = False
    shares_process: bool = True


CASES = {
    "equals": Case({"ngram": FLAT, "draft_model": FLAT, "eagle": FLAT}, ALL, budget_s=208.0,
                   noise=0.15),
    "uneven blocks": Case({"ngram": POOR, "eagle": CROWDED}, SOME, (ONE, MANY), budget_s=400.0,
                          wrap=uneven, keeps_engines=True, shares_process=True),
    "little time": Case({"ngram": POOR, "eagle": STEEP}, SOME, budget_s=80.0, wrap=uneven),
    "two loads": Case({"ngram": POOR, "eagle": STEEP}, SOME, (ONE, FOUR), budget_s=300.0),
    "an arm fails": Case({"eagle": Truth(0.8, 0.02)}, arms_of(("eagle",), range(2, 9)),
                         budget_s=240.0, noise=0.2, wrap=failing),
    "goodput": Case({"ngram": FLAT, "eagle": STEEP}, arms_of(("ngram", "eagle"), range(2, 6)),
                    objective=Objective("goodput", {"e2e": 2500.0, "ttft": 100.0}),
                    budget_s=400.0),
    "quantized": Case({"draft_model": FLAT}, QUANTIZED, objective=Objective("e2e"),
                      budget_s=300.0),
}  # fmt: skip


def decide(case: Case, folder: Path) -> dict[str, Any]:
    planted = Planted(case.truths, noise=case.noise)
    settings = SearchSettings(
        case.arms,
        case.loads,
        Rules(case.objective),
        case.budget_s,
        schedule_methods=METHODS,
        keeps_engines=case.keeps_engines,
        shares_process=case.shares_process,
    )
    with Journal(folder / "journal.jsonl", {}) as journal:
        outcomes, schedule = Search(settings, journal, case.wrap(planted)).run()
        context = RunContext({}, "planted", "target")
        results = make_results(context, settings, outcomes, schedule, journal)
        order = [f"{load} | {arm} | {block}" for load, arm, block in journal.blocks]
    return {"order": order, **outcome(results)}


def outcome(results: Results) -> dict[str, Any]:
    return {
        "loads": {
            load.name: {
                "best": load.best,
                "verdict": None if load.verdict is None else load.verdict.decision,
                "arms": {
                    arm.name: [
                        arm.state,
                        None if arm.predicted is None else round(arm.predicted, 4),
                        None if arm.measured is None else round(arm.measured.estimate, 4),
                    ]
                    for arm in load.arms
                },
            }
            for load in results.loads
        },
        "schedule": [list(each) for each in results.schedule],
        "scheduled": [each.load for each in results.scheduled],
        "is_complete": results.is_complete,
        "duration_s": results.duration_s,
        "num_requests": results.num_requests,
    }


@pytest.mark.parametrize("name", CASES)
def test_the_same_decisions_as_before(name: str, tmp_path: Path) -> None:
    decided = decide(CASES[name], tmp_path)
    before: dict[str, Any] = {}
    for line in DECISIONS.read_text().splitlines():
        before |= json.loads(line)
    if os.environ.get("OUTDRAFT_WRITE_DECISIONS"):
        lines = [json.dumps({each: value}) for each, value in {**before, name: decided}.items()]
        DECISIONS.write_text("".join(f"{line}\n" for line in lines))
    else:
        assert decided == before[name]

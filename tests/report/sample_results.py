"""Made-up results of a tuning run, to test reports with and to look at one.

Speedups come from `goodput` with invented acceptance and costs, times from a seeded generator,
verdicts from `decide`: the numbers are plausible, and the same every time.

    python -m tests.report.sample_results DIR      writes DIR/results.json and DIR/report.html
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import Agreement, Difference
from outdraft.decide.verdict import decide
from outdraft.goodput import (
    RoundCost,
    speedup,
)
from outdraft.plan.findings import Pairing, Shares
from outdraft.report.write import write_report
from outdraft.speculation import OFF, Speculation
from outdraft.stats.percentiles import percentile
from outdraft.stats.ratios import Ratio
from outdraft.tune import results as states
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.results import (
    AcceptanceResult,
    ArmResult,
    LoadResult,
    MemoryResult,
    PredictionResult,
    Pruned,
    Results,
)
from outdraft.tune.schedule import schedule_of
from outdraft.tune.wording import results_json
from outdraft.whole_file import write_json
from tests.planted_rounds import accepted_from_chances, expected_tokens, round_cost

CATEGORIES = ("chat", "code", "code_edit", "creative", "extraction", "qa", "summarization",
              "translation")  # fmt: skip
# How much higher a category's chance of acceptance is than the proposer's.
_SHIFTS = (-0.04, 0.12, 0.16, -0.16, 0.10, -0.06, 0.03, -0.10)
# temperature → share of the traffic, and factor on the proposer's chance
_BANDS = {"0": (0.6, 1.04), "0.3-0.7": (0.2, 0.97), "0.7-1": (0.2, 0.88)}
_MOST_K = 8
_GIB = 2**30
_REASONS = {
    states.DROPPED: "unlikely to beat the best after its blocks",
    states.PROFILED: "first blocks only: 8 others were predicted faster",
}
FLOOR = Agreement(16, 15, (96,))  # of off and itself


@dataclass(frozen=True, slots=True)
class _Proposer:
    speculation: Speculation
    chance: float  # that the first draft token is accepted
    cost: float  # of one draft token, in plain steps
    ks: tuple[int, ...]

    def accepted(self, times: float = 1.0, k: int = _MOST_K) -> list[float]:
        """The chance falls a little with every position."""
        return accepted_from_chances(
            [min(0.98, self.chance * times) * 0.985**place for place in range(k)]
        )


_DRAFT, _HEAD = "smollm2-135m-draft", "smollm2-135m-eagle"
PROPOSERS = (
    _Proposer(Speculation("ngram"), 0.46, 0.004, (3, 5)),
    _Proposer(Speculation("suffix"), 0.58, 0.004, (4, 8)),
    _Proposer(Speculation("draft_model", draft=_DRAFT), 0.84, 0.140, (2, 3, 5, 7)),
    _Proposer(
        Speculation("draft_model", draft=_DRAFT, quantization="int8"), 0.83, 0.090, (3, 4, 5, 7)
    ),
    _Proposer(Speculation("eagle", draft=_HEAD), 0.80, 0.085, (3, 5)),
)
LOADS = ((1, 0.04), (4, 0.10), (16, 0.70))  # concurrency, and what one more place to verify costs


def sample_results(seed: int = 7) -> Results:
    """Three loads, fourteen arms beside off; it ships at the first two and loses at the third."""
    chance = random.Random(seed)
    loads = tuple(_load(number, place, chance) for number, place in LOADS)
    return Results(
        settings={
            "target": "smollm2-135m",
            "methods": ["ngram", "suffix", "draft_model", "eagle"],
            "k": [2, 8],
            "draft_quantization": ["none", "int8"],
            "concurrency": [number for number, _ in LOADS],
            "temperature": "0.0:60%,0.5:20%,0.8:20%",
            "budget_s": 600.0,
            "slo": {"ttft": 500.0, "tpot": 60.0},
            "seed": 0,
        },
        environment={
            "outdraft": "0.1.0",
            "python": "3.12.3",
            "system": "Linux 6.8.0",
            "machine": "x86_64",
            "cpu": "AMD EPYC 9654 96-Core Processor",
            "cores": 16,
            "load_average": 0.4,
            "server": {"engine": "outdraft 0.1.0", "dtype": "float32", "threads": 16},
        },
        backend="embedded",
        target="smollm2-135m",
        objective="tpot",
        loads=loads,
        acceptance=tuple(_acceptance(each) for each in PROPOSERS),
        pruned=(
            Pruned("draft_model smollm2-360m k=5", "draft takes 31 % of memory; at most 15 %"),
            Pruned("draft_model qwen2-0.5b k=3", "other tokenizer than the target's"),
        ),
        prediction=prediction_of(loads),
        schedule=schedule_of(loads, _proposer_at(loads[1])),
        memory=MemoryResult(
            target=int(0.51 * _GIB),
            draft=int(0.04 * _GIB),
            kv=int(2.0 * _GIB),
            free=int(1.45 * _GIB),
            total=4 * _GIB,
            note="16 texts of 2048 tokens, float32 KV cache",
        ),
        main_load="concurrency 4",
        started_at="2026-03-14T09:26:53+00:00",
        duration_s=547.0,
        num_requests=sum(arm.num_requests for load in loads for arm in load.arms),
        notes=("2 of 16 cores were busy with something else when the run began",),
    )


def _proposer_at(load: LoadResult) -> str:
    assert load.best_arm is not None
    return proposer_name(load.best_arm.speculation)


def prediction_of(loads: tuple[LoadResult, ...]) -> PredictionResult:
    judged = {
        (load.name, arm.name): abs(arm.predicted / arm.measured.estimate - 1)
        for load in loads
        for arm in load.arms
        if arm.measured is not None and arm.predicted is not None
    }
    if not judged:
        return PredictionResult(0, None, None)
    errors = list(judged.values())
    within = sum(each <= 0.15 for each in errors) / len(errors)
    return PredictionResult(len(errors), within, percentile(errors, 0.5), tuple(judged))


def ratio_about(estimate: float, width: float, num_blocks: int, block: int = 12) -> Ratio:
    """`width`: half of the interval, as a share."""
    reach = math.exp(width)
    known = num_blocks >= 5
    return Ratio(
        estimate,
        estimate / reach if known else None,
        estimate * reach if known else None,
        0.95,
        num_blocks * block,
        num_blocks,
    )


def _load(number: int, place: float, chance: random.Random) -> LoadResult:
    worth = {(each, k): _speedup(each, k, place) for each in PROPOSERS for k in each.ks}
    ranked = sorted(worth, key=lambda each: -worth[each])
    off = _off(number, chance)
    arms = [off]
    for (proposer, k), true in worth.items():
        rank = ranked.index((proposer, k))
        arms.append(_arm(proposer, k, true, rank, number, off, chance))
    best = next(arm for arm in arms if arm.state == states.BEST)
    verdict = decide(_evidence(best, place, ranked[0], number))
    return LoadResult(f"concurrency {number}", number, None, tuple(arms), best.name, verdict, FLOOR)


def _speedup(proposer: _Proposer, k: int, place: float) -> float:
    cost = round_cost(k, draft=proposer.cost, verify=1 + place * k, step=1.0)
    return speedup(expected_tokens(proposer.accepted(k=k)), cost)


def _off(number: int, chance: random.Random) -> ArmResult:
    tpot = [14 * (1 + 0.16 * number) * chance.lognormvariate(0, 0.09) for _ in range(240)]
    ttft = [40 * (1 + 0.3 * number) * chance.lognormvariate(0, 0.3) for _ in tpot]
    e2e = [t + per * chance.gauss(120, 30) for t, per in zip(ttft, tpot, strict=True)]
    return ArmResult(
        name="off",
        speculation=OFF,
        state=states.BASELINE,
        num_requests=240,
        tokens_per_s=number * 1000 / percentile(tpot, 0.5),
        ttft_ms=tuple(ttft),
        tpot_ms=tuple(tpot),
        e2e_ms=tuple(max(each, 60.0) for each in e2e),
    )


def _arm(
    proposer: _Proposer, k: int, true: float, rank: int, number: int, off: ArmResult,
    chance: random.Random,
) -> ArmResult:  # fmt: skip
    accepted = proposer.accepted(k=k)
    speculation = replace(proposer.speculation, k=k)
    arm = ArmResult(
        name=name_of(speculation),
        speculation=speculation,
        state=states.PREDICTED,
        reason="predicted slower than the best",
        predicted=true * chance.lognormvariate(0, 0.075),
    )
    if number == 16 and speculation.method == "eagle" and k == 5:
        return replace(arm, state=states.FAILED, num_errors=12, reason="out of memory: the KV "
                       "cache needs 2.1 GiB, 1.4 GiB are free")  # fmt: skip
    if rank > 10 and number == 16:
        reason = "the run ended before"
        return replace(arm, state=states.UNTRIED, predicted=None, reason=reason)
    if rank > 8:
        return arm
    blocks = 20 if rank == 0 else 12 if rank < 4 else 3 if rank > 6 else 6
    state = states.BEST if rank == 0 else states.RACED if rank < 4 else states.DROPPED
    state = states.PROFILED if rank == 8 else state
    measured = ratio_about(true * chance.lognormvariate(0, 0.01), 0.11 / math.sqrt(blocks), blocks)
    arm = replace(
        arm,
        state=state,
        reason=_REASONS.get(state, ""),
        measured=measured,
        ratios=_ratios(measured),
        acceptance_rate=sum(accepted) / k,
        acceptance_length=expected_tokens(accepted),
        num_requests=12 * blocks,
        num_errors=1 if rank == 3 else 0,
        tokens_per_s=(off.tokens_per_s or 0.0) * true,
        texts=_texts(7 * blocks, rank),
    )
    if rank == 0:
        faster = [true * chance.lognormvariate(0, 0.16) for _ in off.tpot_ms]
        tpot = [each / times for each, times in zip(off.tpot_ms, faster, strict=True)]
        ttft = [each * 1.06 for each in off.ttft_ms]
        arm = replace(
            arm,
            tpot_ms=tuple(tpot),
            ttft_ms=tuple(ttft),
            e2e_ms=tuple(
                late + max(e2e - first, 1.0) / times
                for late, e2e, first, times in zip(
                    ttft, off.e2e_ms, off.ttft_ms, faster, strict=True
                )
            ),
        )
    return arm


def _texts(num: int, rank: int) -> Agreement:
    """One near-tie in the best arm's, none in most others'."""
    one, other = (f"…if not rows:\n    return {each}" for each in ("None", "[]"))
    example = Difference("code-017", "code", 211, one, other)
    return Agreement(num, num - 1, (211,), example) if rank in (0, 4) else Agreement(num, num)


def _ratios(tpot: Ratio) -> dict[str, Ratio]:
    width = math.log(tpot.high / tpot.low) / 2 if tpot.low and tpot.high else 0.05
    about = {"e2e": tpot.estimate * 0.975, "tpot": tpot.estimate, "ttft": 0.94,
             "throughput": tpot.estimate * 0.96}  # fmt: skip
    return {name: ratio_about(each, width, tpot.num_blocks) for name, each in about.items()}


def _evidence(
    best: ArmResult, place: float, chosen: tuple[_Proposer, int], number: int
) -> Evidence:
    proposer, k = chosen
    found = _acceptance(proposer)
    cost = round_cost(k, draft=proposer.cost, verify=1 + place * k, step=1.0)
    main = best.ratios["e2e"].estimate
    rate = best.acceptance_rate or 0.0
    return Evidence(
        e2e=best.ratios["e2e"],
        tpot=best.ratios["tpot"],
        ttft=best.ratios["ttft"],
        throughput=best.ratios["throughput"],
        by_category={
            name: ratio_about(main * (1 + shift / 2), 0.06, 20, 2)
            for name, shift in zip(CATEGORIES, _SHIFTS, strict=True)
        },
        acceptance=AcceptanceSummary(
            rate, p10=rate - 0.2, p50=rate, p90=min(rate + 0.15, 1.0),
            per_position=found.per_position[:k], length=best.acceptance_length, num_requests=240,
        ),
        mean_output_tokens=118.4,
        temperatures=(0.0, 0.5, 0.8),
        noise_floor=0.008,
        texts=best.texts,
        text_floor=FLOOR,
        memory=Shares(0.128, 0.01, 0.36),
        pairing=Pairing(12.7, True, True),
        costs=RoundCost(k, cost),
        unquantized_acceptance=rate + 0.012,
        load=f"concurrency {number}",
    )  # fmt: skip


def _acceptance(proposer: _Proposer) -> AcceptanceResult:
    rates = {band: proposer.accepted(times) for band, (_, times) in _BANDS.items()}
    accepted = [
        sum(part * rates[band][place] for band, (part, _) in _BANDS.items())
        for place in range(_MOST_K)
    ]
    categories = {}
    for name, shift in zip(CATEGORIES, _SHIFTS, strict=True):
        median = sum(proposer.accepted(1 + shift)) / _MOST_K
        few = proposer.speculation.method == "ngram" and name == "creative"
        categories[name] = (
            None if few else max(median - 0.16, 0.0), median, min(median + 0.13, 1.0)
        )  # fmt: skip
    return AcceptanceResult(
        name=proposer_name(proposer.speculation),
        k=_MOST_K,
        rate=sum(accepted) / _MOST_K,
        length=expected_tokens(accepted),
        per_position=tuple(accepted),
        per_position_by_temperature={band: tuple(each) for band, each in rates.items()},
        by_category=categories,
        by_temperature={band: sum(each) / _MOST_K for band, each in rates.items()},
        num_requests=96,
        num_by_category=dict.fromkeys(categories, 12),
        num_by_temperature={band: round(96 * part) for band, (part, _) in _BANDS.items()},
        share_drafted={"ngram": 0.41, "suffix": 0.63}.get(proposer.speculation.method),
    )


def main(folder: str) -> None:
    results = sample_results()
    write_json(Path(folder) / "results.json", results_json(results))
    write_report(results, Path(folder) / "report.html")


if __name__ == "__main__":
    main(sys.argv[1])

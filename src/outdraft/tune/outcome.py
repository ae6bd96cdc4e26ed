"""From the journal and where each race ended to Results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from outdraft.measure.evidence import ratio_of
from outdraft.measure.summary import acceptance_of, added, summarize
from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.stats import Ratio, percentile
from outdraft.tune.arm import Load, by_proposer, name_of, proposer_name
from outdraft.tune.forecast import counts_of
from outdraft.tune.journal import Block, Journal
from outdraft.tune.objective import Objective
from outdraft.tune.results import (
    BASELINE,
    BEST,
    DROPPED,
    FAILED,
    PREDICTED,
    RACED,
    AcceptanceResult,
    ArmResult,
    LoadResult,
    PredictionResult,
)  # fmt: skip
from outdraft.tune.session import Finished
from outdraft.tune.standing import Standing
from outdraft.workload.temperatures import temperature_band

_RATIOS = ("e2e", "tpot", "ttft", "throughput", "p99")
_ERROR = 0.05  # of all intervals of a load together
_CLOSE = 0.15  # a prediction within this is a good one
_FEWEST = 5  # requests of a category for percentiles


def load_result(
    arms: Sequence[Speculation], finished: Finished, journal: Journal, objective: Objective
) -> LoadResult:
    load, standing = finished.load, finished.standing
    off = _records(journal, load, OFF)
    raced = {name_of(arm) for arm in standing.finalists}
    failure = journal.failures.get((load.name, name_of(OFF)))
    reason = "" if failure is None else f"failed: {failure.reason}"
    results = [_arm(OFF, BASELINE, reason, load, journal, standing, off, objective)]
    for arm in arms:
        state, reason = _state(arm, load, journal, standing, raced)
        results.append(_arm(arm, state, reason, load, journal, standing, off, objective))
    verdict = standing.verdict
    return LoadResult(
        name=load.name,
        concurrency=load.concurrency,
        rate=load.rate,
        arms=tuple(results),
        best=None if standing.best is None else name_of(standing.best),
        verdict=None if verdict is None else verdict.to_json(),
    )


def acceptance_results(
    arms: Sequence[Speculation], loads: Sequence[Load], journal: Journal
) -> tuple[AcceptanceResult, ...]:
    """Of each proposer at the longest draft that was measured, over all loads."""
    found = []
    for members in by_proposer(arms).values():
        for arm in reversed(members):
            blocks = [each for load in loads for each in journal.of(load.name, name_of(arm))]
            if blocks:
                found += _acceptance(arm, blocks)
                break
    return tuple(found)


def prediction_result(
    loads: Sequence[LoadResult], calibrated: Mapping[str, Sequence[str]]
) -> PredictionResult:
    """Arms that a load's predictions were made from predict nothing, and are left out."""
    errors = [
        abs(arm.predicted / arm.measured.estimate - 1)
        for load in loads
        for arm in load.arms
        if arm.predicted is not None
        and arm.measured is not None
        and arm.name not in calibrated.get(load.name, ())
    ]
    if not errors:
        return PredictionResult(0, None, None)
    within = sum(each <= _CLOSE for each in errors) / len(errors)
    return PredictionResult(len(errors), within, percentile(errors, 0.5))


def level_of(standing: Standing) -> float:
    """Of the verdict's intervals, and so of all that are shown: the error of 5 % is shared between
    the looks and the arms that raced."""
    evidence = standing.evidence
    if evidence is None or evidence.e2e is None:
        return 1 - _ERROR / max(len(standing.finalists), 1)
    return evidence.e2e.level


def _state(
    arm: Speculation, load: Load, journal: Journal, standing: Standing, raced: set[str]
) -> tuple[str, str]:
    name = name_of(arm)
    failure = journal.failures.get((load.name, name))
    if failure is not None:
        return FAILED, failure.reason
    if standing.best is not None and name == name_of(standing.best):
        return BEST, ""
    if name in standing.dropped:
        return DROPPED, standing.dropped[name]
    if name in raced:
        return RACED, ""
    if name in standing.predicted:
        ahead = sum(each > standing.predicted[name] for each in standing.predicted.values())
        return PREDICTED, f"predicted behind {ahead} others"
    return PREDICTED, "nothing is known of it: the run ended before"


def _arm(
    arm: Speculation,
    state: str,
    reason: str,
    load: Load,
    journal: Journal,
    standing: Standing,
    off: Sequence[Record],
    objective: Objective,
) -> ArmResult:
    records = _records(journal, load, arm)
    summary = summarize(records, objective.slo)
    ratios: dict[str, Ratio] = {}
    level = level_of(standing)
    if records and state != BASELINE:
        found = {name: ratio_of(name, off, records, level=level) for name in _RATIOS}
        ratios = {name: ratio for name, ratio in found.items() if ratio is not None}
    counts, _, _ = counts_of(journal.of(load.name, name_of(arm)))
    with_times = state in (BASELINE, BEST)
    done = [each for each in records if each.ok] if with_times else []
    return ArmResult(
        name=name_of(arm),
        speculation=asdict(arm),
        state=state,
        reason=reason,
        predicted=standing.predicted.get(name_of(arm)),
        measured=objective.ratio(off, records, level=level) if ratios else None,
        ratios=ratios,
        acceptance_rate=counts.rate,
        acceptance_length=counts.length,
        num_requests=summary.num_requests - summary.num_errors,
        num_errors=summary.num_errors,
        tokens_per_s=_busy_tokens_per_s(journal.of(load.name, name_of(arm))),
        goodput_per_s=summary.goodput_per_s,
        ttft_ms=_ms([each.ttft_ns for each in done]),
        tpot_ms=_ms([each.tpot_ns for each in done]),
        e2e_ms=_ms([each.e2e_ns for each in done]),
    )


def _ms(values: Sequence[float | None]) -> tuple[float, ...]:
    return tuple(round(value / 1e6, 3) for value in values if value is not None)


def _busy_tokens_per_s(blocks: Sequence[Block]) -> float | None:
    """Over the blocks themselves: between them others had the machine."""
    tokens = spent = 0
    for block in blocks:
        done = [each for each in block.records if each.ok]
        if done:
            tokens += sum(each.completion_tokens or 0 for each in done)
            start = min(each.scheduled_ns for each in done)
            spent += max(each.last_ns or 0 for each in done) - start
    return tokens / spent * 1e9 if spent else None


def _records(journal: Journal, load: Load, arm: Speculation) -> list[Record]:
    blocks = journal.of(load.name, name_of(arm))
    return [each for block in blocks if not block.problems for each in block.records]


def _acceptance(arm: Speculation, blocks: Sequence[Block]) -> list[AcceptanceResult]:
    records = [each for block in blocks for each in block.records if each.ok]
    counts, num_tokens, num_texts = counts_of(blocks)
    whole = acceptance_of(records, counts)
    if whole is None:
        return []
    by_band: dict[str, list[Record]] = {}
    by_category: dict[str, list[float]] = {}
    for each in records:
        if each.acceptance is None or each.acceptance.rate is None:
            continue
        by_band.setdefault(temperature_band(each.temperature), []).append(each)
        by_category.setdefault(each.category, []).append(each.acceptance.rate)
    steps = num_tokens - num_texts - counts.num_accepted_tokens
    return [
        AcceptanceResult(
            name=proposer_name(arm),
            k=arm.k,
            rate=whole.rate,
            length=whole.length,
            per_position=_survival(records) or whole.per_position,
            per_position_by_temperature={
                band: _survival(members) for band, members in sorted(by_band.items())
            },
            by_category={name: _percentiles(each) for name, each in sorted(by_category.items())},
            by_temperature=dict(whole.by_temperature),
            num_requests=whole.num_requests or len(records),
            share_drafted=counts.num_drafts / steps if 0 < counts.num_drafts <= steps else None,
            num_by_category={name: len(each) for name, each in sorted(by_category.items())},
            num_by_temperature={band: len(each) for band, each in sorted(by_band.items())},
        )
    ]


def _survival(records: Sequence[Record]) -> tuple[float, ...]:
    """Share of all rounds in which each place was accepted: falls with the place."""
    counts = added(records)
    if not counts.num_drafts:
        return ()
    return tuple(each / counts.num_drafts for each in counts.accepted_per_position)


def _percentiles(rates: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    if len(rates) < _FEWEST:
        return None, percentile(rates, 0.5), None
    return percentile(rates, 0.1), percentile(rates, 0.5), percentile(rates, 0.9)

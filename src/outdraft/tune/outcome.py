"""Results from the journal and the final standings of the races. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.measure.evidence import RATIOS, ratio_of, text_agreement
from outdraft.measure.machine import describe_client
from outdraft.measure.plateau import counted_ns
from outdraft.measure.summary import acceptance_of, meets
from outdraft.records import Record
from outdraft.speculation import OFF, Schedule, Speculation
from outdraft.stats.percentiles import percentile
from outdraft.stats.ratios import LEVEL, Ratio
from outdraft.tune import results as states
from outdraft.tune.arm import FINAL, Load, by_proposer, name_of, proposer_name
from outdraft.tune.final_prompts import count_prompts, prompt_notes
from outdraft.tune.journal import (
    Block,
    Journal,
    are_drafts_reported,
    count_drafts,
    done_records,
    has_rounds,
    paired_blocks,
    valid_blocks,
    valid_records,
)
from outdraft.tune.marks import busy_notes
from outdraft.tune.out_of_time import find_out_of_time
from outdraft.tune.prediction import reported_step_costs
from outdraft.tune.race import Standing
from outdraft.tune.results import (
    AcceptanceResult,
    ArmResult,
    LoadResult,
    MemoryResult,
    PredictionResult,
    Pruned,
    Results,
)
from outdraft.tune.rules import Objective, SearchSettings
from outdraft.tune.schedule import schedule_results, scheduled_arm
from outdraft.tune.short_loads import running_of, short_load_notes
from outdraft.tune.texts import floor_of, texts_part
from outdraft.tune.visits import visited_off, with_visits
from outdraft.workload.temperatures import temperature_band

_CLOSE = 0.15  # a prediction within this is a good one
_FEWEST = 5  # requests of a category for percentiles


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Where the race under one load ended."""

    standing: Standing
    is_out_of_time: bool  # it ended before the final had all its blocks, or before there was one
    result: LoadResult

    @property
    def is_unfinished(self) -> bool:
        """More time might have changed the answer."""
        return self.is_out_of_time and not self.standing.is_clear


@dataclass(frozen=True, slots=True)
class RunContext:
    """What does not depend on measurements."""

    settings: Mapping[str, Any]  # every option, as it was given
    backend: str
    target: str
    pruned: tuple[Pruned, ...] = ()
    memory: Callable[[Speculation], MemoryResult | None] = lambda speculation: None
    warnings: tuple[str, ...] = ()


def make_results(
    context: RunContext,
    settings: SearchSettings,
    outcomes: Sequence[LoadOutcome],
    schedule: Schedule,
    journal: Journal,
) -> Results:
    main = outcomes[0]
    best = main.standing.best or OFF
    standings = {each.result.name: each.standing for each in outcomes}
    unfinished = [each.result.name for each in outcomes if each.is_unfinished]
    out_of_time = find_out_of_time(settings, standings, unfinished, journal)
    scheduled = scheduled_arm(best, schedule, settings)
    steps = reported_step_costs(list(journal.blocks.values()))
    return Results(
        settings=dict(context.settings),
        environment=describe_client(),
        backend=context.backend,
        target=context.target,
        objective=settings.rules.objective.name,
        loads=tuple(each.result for each in outcomes),
        acceptance=acceptance_results(settings.arms, settings.loads, journal),
        pruned=context.pruned,
        prediction=_prediction_result(outcomes),
        schedule=schedule,
        scheduled=() if scheduled is None else schedule_results(scheduled, settings, journal),
        memory=context.memory(best),
        main_load=main.result.name,
        started_at=journal.started_at,
        duration_s=journal.elapsed_s(),
        num_requests=journal.num_requests,
        step_seconds={} if steps is None else {str(n): s for n, s in steps.measured.items()},
        notes=(
            *_notes(outcomes, settings.loads, journal),
            *short_load_notes(settings.loads, journal),
            *busy_notes(journal),
            *out_of_time.notes,
            *context.warnings,
        ),
        has_schedule=best.method in settings.schedule_methods,
        is_complete=not unfinished,
        enough_s=out_of_time.enough_s,
    )


def _notes(outcomes: Sequence[LoadOutcome], loads: Sequence[Load], journal: Journal) -> list[str]:
    reasons = {each.result.name: _why_unclear(each) for each in outcomes}
    notes = [f"{name}: {reason}" for name, reason in reasons.items() if reason]
    for each in outcomes:
        if rivals := each.standing.alive[1:]:
            names = ", ".join(map(name_of, rivals))
            notes.append(f"{each.result.name}: {names} may be as good as {each.result.best}")
    for each in outcomes:
        failures = each.standing.failed
        for reason in dict.fromkeys(failures.values()):
            arms = ", ".join(arm for arm in failures if failures[arm] == reason)
            notes.append(f"{each.result.name}: failed: {arms} ({reason})")
    notes += [note for each in outcomes for note in prompt_notes(each.result)]
    asked_again = {texts_part(load).name for load in loads}  # for texts, which no client changes
    blocks = [each for each in journal.blocks.values() if each.load not in asked_again]
    if unfit := sum(bool(each.problems) for each in blocks):
        where = f"in {unfit} of {len(blocks)} blocks the client was not fit to measure"
        notes.append(f"{where} (see the journal): nothing is compared with those")
    return notes


def _why_unclear(outcome: LoadOutcome) -> str:
    """Empty where the answer is clear."""
    standing = outcome.standing
    if standing.is_clear:
        return ""
    if name_of(OFF) in standing.failed:
        return "off failed, and without it nothing can be compared"
    if standing.best is None:
        if outcome.is_out_of_time:
            return "the time was over before anything was compared with off"
        return "every arm but off failed"
    if outcome.is_out_of_time:
        return "the time was over before the answer was clear"
    return "all blocks are spent, and the answer is not clear"


def _prediction_result(outcomes: Sequence[LoadOutcome]) -> PredictionResult:
    """Arms that the predictions of a load were made from are left out."""
    judged = {
        (each.result.name, arm.name): abs(arm.predicted / arm.measured.estimate - 1)
        for each in outcomes
        for arm in each.result.arms
        if arm.predicted is not None
        and arm.measured is not None
        and arm.name not in each.standing.calibrated
    }
    if not judged:
        return PredictionResult(0, None, None)
    errors = list(judged.values())
    within = sum(each <= _CLOSE for each in errors) / len(errors)
    return PredictionResult(len(errors), within, percentile(errors, 0.5), tuple(judged))


def load_result(
    settings: SearchSettings, load: Load, standing: Standing, journal: Journal
) -> LoadResult:
    """Off and the best arm with what the final measured, where there was one; others with what the
    race did, at a level that allows for their number."""
    best, objective = standing.best, settings.rules.objective
    final = load.in_part(FINAL, "" if best is None else name_of(best))
    judged = [] if best is None else journal.of(final.name, name_of(best))
    shared = 1 - (1 - LEVEL) / max(len(standing.finalists), 1)
    final_off, of_visits = journal.of(final.name, name_of(OFF)), 0.0
    if settings.in_visits:
        final_off, of_visits = visited_off(journal, final)

    def result_of(arm: Speculation) -> ArmResult:
        level, visits = shared, 0.0
        off = journal.of(load.on(settings.cards.of(arm)).name, name_of(OFF))
        own = journal.of(load.name, name_of(arm))
        if judged and arm in (OFF, best):
            level, visits, off, own = LEVEL, of_visits, final_off, judged
        own, others = (off, own) if arm.is_off else (own, off)
        blocks = paired_blocks(own, others) or valid_blocks(own)
        beside = valid_records(paired_blocks(off, blocks))
        sent = valid_records(own)
        return _arm_result(arm, standing, blocks, beside, sent, objective, level, visits)

    return LoadResult(
        name=load.name,
        concurrency=load.concurrency,
        rate=load.rate,
        arms=tuple(map(result_of, (OFF, *settings.arms))),
        best=None if standing.best is None else name_of(standing.best),
        verdict=standing.verdict,
        text_floor=floor_of(
            {name_of(OFF): journal.of(load.name, name_of(OFF))},
            journal.of(texts_part(load).name, name_of(OFF)),
        ),
        prompts=None
        if standing.verdict is None
        else count_prompts(
            valid_blocks(journal.at(load.name)),
            (*paired_blocks(final_off, judged), *paired_blocks(judged, final_off)),
        ),
    )


def _arm_result(
    arm: Speculation,
    standing: Standing,
    blocks: Sequence[Block],  # of the arm: every figure is of the same ones
    off: Sequence[Record],  # beside them
    sent: Sequence[Record],  # in all its valid blocks, as the verdict counts failures
    objective: Objective,
    level: float,
    of_visits: float,  # variance of a visit, where arms did not take turns
) -> ArmResult:
    state, reason = _state(arm, standing, is_measured=bool(blocks))
    records, done, slo = valid_records(blocks), done_records(blocks), objective.slo
    evidence = standing.evidence if arm == standing.best else None
    texts = text_agreement(off, records) if evidence is None else evidence.texts

    def ratio(name: str) -> Ratio | None:
        """As the verdict has it, where there is one: its P99 shares an error with parts."""
        if evidence is None:
            return with_visits(ratio_of(name, off, records, level=level), of_visits)
        judged: Ratio | None = getattr(evidence, name)
        return judged

    names = RATIOS if records and state != states.BASELINE else ()
    ratios = {name: found for name in names if (found := ratio(name)) is not None}
    acceptance, num_tokens, num_texts = count_drafts(blocks)
    is_reported = are_drafts_reported(blocks)
    running = running_of(blocks)
    timed = done if state in (states.BASELINE, states.BEST) else []
    return ArmResult(
        name=name_of(arm),
        speculation=arm,
        state=state,
        reason=reason,
        predicted=standing.predicted.get(name_of(arm)),
        measured=with_visits(objective.ratio(off, records, level=level), of_visits)
        if ratios
        else None,
        ratios=ratios,
        acceptance_rate=acceptance.rate,
        acceptance_length=acceptance.length,
        acceptance_source="" if acceptance.rate is None else _source(is_reported=is_reported),
        num_requests=len(done),
        num_errors=sum(not each.ok and not each.is_warmup for each in sent),
        tokens_per_s=_per_s(blocks, lambda each: each.completion_tokens or 0),
        goodput_per_s=None if slo is None else _per_s(blocks, lambda each: meets(each, slo)),
        ttft_ms=_ms(each.ttft_ns for each in timed),
        tpot_ms=_ms(each.tpot_ns for each in timed),
        e2e_ms=_ms(each.e2e_ns for each in timed),
        texts=None if arm.is_off else texts,
        counts=acceptance if has_rounds(acceptance) else None,
        num_tokens=num_tokens,
        num_texts=num_texts,
        pace_ratio=_pace_ratio(off, done),
        raced=standing.measured.get(name_of(arm)) if state == states.BEST else None,
        running=None if running is None else running.mean,
    )


def _state(arm: Speculation, standing: Standing, *, is_measured: bool) -> tuple[str, str]:
    """What became of the arm, and why."""
    name = name_of(arm)
    failure = standing.failed.get(name)
    if arm.is_off:
        return states.BASELINE, "" if failure is None else f"failed: {failure}"
    if failure is not None:
        return states.FAILED, failure
    if arm == standing.best:
        raced = standing.measured.get(name)
        if raced is None or standing.verdict is None:
            return states.BEST, ""
        return states.BEST, f"chosen at {raced.estimate:.2f}x in the race, then measured anew"
    if name in standing.dropped:
        return states.DROPPED, standing.dropped[name]
    if arm in standing.finalists:
        return states.RACED, ""
    if name in standing.predicted:
        ahead = sum(each > standing.predicted[name] for each in standing.predicted.values())
        why = f"{ahead} other{' was' if ahead == 1 else 's were'} predicted faster"
        if is_measured:
            return states.PROFILED, f"first blocks only: {why}"
        return states.PREDICTED, why
    if is_measured:
        return states.PROFILED, "first blocks only: the run ended before more"
    return states.UNTRIED, "the run ended before"


def _pace_ratio(off: Sequence[Record], own: Sequence[Record]) -> float | None:
    """Unlike a mean of ratios, this goes with acceptance, which is over all tokens too."""
    paces = []
    for records in (off, own):
        timed = [each for each in records if each.tpot_ns is not None and not each.is_warmup]
        tokens = [(each.completion_tokens or 1) - 1 for each in timed]
        spent = sum((each.tpot_ns or 0.0) * n for each, n in zip(timed, tokens, strict=True))
        paces.append(spent / sum(tokens) if sum(tokens) else 0.0)
    return paces[0] / paces[1] if all(paces) else None


def _ms(nanoseconds: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(round(value / 1e6, 3) for value in nanoseconds if value is not None)


def _per_s(blocks: Sequence[Block], count: Callable[[Record], int]) -> float | None:
    """Over the time of the arm's own blocks: between them others had the machine."""
    spent = sum(counted_ns(block.records) for block in blocks)
    return sum(map(count, done_records(blocks))) / spent * 1e9 if spent else None


def acceptance_results(
    arms: Sequence[Speculation], loads: Sequence[Load], journal: Journal
) -> tuple[AcceptanceResult, ...]:
    """Of each proposer at the longest draft that was measured: first blocks and race of all loads
    together. What a final measured is in the row of its arm."""
    results = []
    for members in by_proposer(arms).values():
        for arm in reversed(members):
            measured = (journal.of(load.name, name_of(arm)) for load in loads)
            blocks = [each for own in measured for each in valid_blocks(own)]
            if blocks:
                results.append(_acceptance_result(arm, blocks))
                break
    return tuple(filter(None, results))


def _acceptance_result(arm: Speculation, blocks: Sequence[Block]) -> AcceptanceResult | None:
    records = done_records(blocks)
    counts, num_tokens, num_texts = count_drafts(blocks)
    whole = acceptance_of(records, counts)
    if whole is None:
        return None
    by_band: dict[str, list[Record]] = {}
    by_category: dict[str, list[float]] = {}
    for each in records:
        if each.acceptance is not None and each.acceptance.rate is not None:
            by_band.setdefault(temperature_band(each.temperature), []).append(each)
            by_category.setdefault(each.category, []).append(each.acceptance.rate)
    return AcceptanceResult(
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
        share_drafted=counts.share_drafted(num_tokens, num_texts),
        num_by_category={name: len(each) for name, each in sorted(by_category.items())},
        num_by_temperature={band: len(each) for band, each in sorted(by_band.items())},
        source=_source(is_reported=whole.num_requests > 0),
    )


def _source(*, is_reported: bool) -> str:
    return states.FROM_ANSWERS if is_reported else states.FROM_COUNTERS


def _survival(records: Sequence[Record]) -> tuple[float, ...]:
    return Acceptance.total(each.acceptance for each in records).survival_per_position


def _percentiles(rates: Sequence[float]) -> tuple[float | None, float | None, float | None]:
    low, high = (percentile(rates, q) if len(rates) >= _FEWEST else None for q in (0.1, 0.9))
    return low, percentile(rates, 0.5), high

"""The verdict on the leader of a race, at preset looks and when the time is over. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, Verdict, decide
from outdraft.measure.evidence import make_evidence
from outdraft.measure.failures import failures_of
from outdraft.speculation import MAX_K, OFF, Speculation
from outdraft.stats import MIN_BLOCKS, Look, Zone, plan_looks, zone
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.forecast import counts_of, sum_counts
from outdraft.tune.journal import Block
from outdraft.tune.standing import Known, Rules, Standing, fit, records_of

_NUM_LOOKS = 4


def judge(
    standing: Standing,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    known: Known,
) -> None:
    """The verdict on the leader, at the preset looks."""
    look = next((each for each in _looks(rules) if each.num_blocks == number), None)
    best = standing.best
    if look is None or best is None or not _is_enough(blocks, best, number):
        return
    key = (name_of(best), number, len(standing.finalists))
    if key not in known.judged:
        evidence = evidence_of(standing, blocks, rules, look.level, before=number)
        known.judged[key] = evidence, _decided(evidence, best, blocks, rules, number)
    evidence, verdict = known.judged[key]
    standing.evidence, standing.verdict = evidence, verdict
    is_tie = evidence.e2e is not None and zone(evidence.e2e, rules.margin) is Zone.TIE
    if not evidence.is_valid or (verdict.decision == INCONCLUSIVE and not is_tie):
        return
    standing.is_clear = standing.alive == (best,)


def judge_now(standing: Standing, blocks: Mapping[str, Sequence[Block]], rules: Rules) -> None:
    """When the time is over: the verdict on what there is, as at the look that would have come."""
    best = standing.best
    number = 1 + max((each.block for each in blocks.get(name_of(OFF), ())), default=-1)
    if best is None or not _is_enough(blocks, best, number):
        return
    look = next((each for each in _looks(rules) if each.num_blocks >= number), None)
    level = 0.95 if look is None else look.level
    standing.evidence = evidence_of(standing, blocks, rules, level)
    standing.verdict = _decided(standing.evidence, best, blocks, rules, None)


def _decided(
    evidence: Evidence,
    best: Speculation,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    before: int | None,
) -> Verdict:
    """By requests end to end; nobody who asked for something else gets it at a loss in that."""
    verdict = decide(evidence, margin=rules.margin)
    goal = rules.objective
    if goal.name == "e2e" or evidence.e2e is None:
        return verdict
    off, own = records_of(blocks, OFF, before), records_of(blocks, best, before)
    ratio = goal.ratio(off, own, level=evidence.e2e.level)
    if ratio is None or ratio.low is None:
        return verdict
    told = f"{goal.name}: speedup {ratio.estimate:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
    against = Zone.WIN if verdict.decision == DONT_SHIP else Zone.LOSE
    if verdict.decision == INCONCLUSIVE or zone(ratio, rules.margin) is not against:
        return replace(verdict, reasons=(*verdict.reasons, told))
    told += ", against requests end to end: choose by what was promised"
    return replace(verdict, decision=INCONCLUSIVE, ship_for=(), reasons=(*verdict.reasons, told))


def _looks(rules: Rules) -> list[Look]:
    return list(plan_looks(rules.max_blocks, _NUM_LOOKS))


def _is_enough(blocks: Mapping[str, Sequence[Block]], arm: Speculation, number: int) -> bool:
    return sum(each.block < number for each in blocks.get(name_of(arm), ())) >= MIN_BLOCKS


def evidence_of(
    standing: Standing,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    level: float,
    before: int | None = None,
) -> Evidence:
    """Of the leader against off. The error is shared between the finalists, because the leader
    was chosen by the same data."""
    assert standing.best is not None
    own = fit(blocks, standing.best, before)
    counted = [each.counted for each in own if each.counted is not None]
    off, best = records_of(blocks, OFF, before), records_of(blocks, standing.best, before)
    sent = {name_of(OFF): off, name_of(standing.best): best}
    failures, few_failed = failures_of({name: each for name, each in sent.items() if each})
    evidence = make_evidence(
        off,
        best,
        level=1 - (1 - level) / max(len(standing.finalists), 1),
        margin=rules.margin,
        problems=failures,
        is_valid=few_failed,
        ttft_bound="ttft" in (rules.objective.slo or {}),
        counted=sum_counts(counted) if counted else None,
        load=rules.load_name,
        memory=rules.memory.get(proposer_name(standing.best)),
        pairing=rules.pairing.get(proposer_name(standing.best)),
    )
    loss = _unquantized(standing.best, evidence, blocks)
    return replace(evidence, unquantized_acceptance=loss)


def _unquantized(
    arm: Speculation, evidence: Evidence, blocks: Mapping[str, Sequence[Block]]
) -> float | None:
    """The acceptance that the same draft would have at full precision. It is compared at a draft
    length that both were measured at, in the first blocks: these have the same prompts."""
    if arm.quantization == "none" or evidence.acceptance is None:
        return None
    for k in range(MAX_K, 0, -1):
        packed, full = replace(arm, k=k), replace(arm, k=k, quantization="none")
        rates = [
            counts_of([each for each in blocks.get(name_of(one), ()) if each.block < 2])[0].rate
            for one in (packed, full)
        ]
        if rates[0] is not None and rates[1] is not None:
            return evidence.acceptance.rate + rates[1] - rates[0]
    return None

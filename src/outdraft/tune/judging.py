"""The verdict on an arm against off, from the blocks of both. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outdraft.acceptance import Acceptance
from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import Agreement, TextFinding
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, Verdict, decide, finding_on
from outdraft.loadgen.quality import assess_arms
from outdraft.measure.evidence import make_evidence
from outdraft.observe import Written
from outdraft.speculation import MAX_K, OFF, Speculation
from outdraft.stats.ratios import LEVEL
from outdraft.stats.sequential import Zone, zone
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.journal import Block, count_drafts, paired_blocks, valid_records
from outdraft.tune.rules import Rules
from outdraft.tune.texts import texts_of
from outdraft.tune.visits import evidence_of_visits, with_visits


@dataclass(frozen=True, slots=True)
class Judgement:
    evidence: Evidence
    verdict: Verdict

    def is_clear(self, margin: float) -> bool:
        """More blocks would not change it: a decision, or a tie with off."""
        e2e = self.evidence.e2e
        is_tie = e2e is not None and zone(e2e, margin) is Zone.TIE
        return self.evidence.is_valid and (self.verdict.decision != INCONCLUSIVE or is_tie)


def judge(
    arm: Speculation,
    blocks: Mapping[str, Sequence[Block]],  # of the final, by the arm's name; off's too
    raced: Mapping[str, Sequence[Block]],  # of the race, which chose the arm
    rules: Rules,
    text_floor: Agreement | None = None,
    of_visits: float = 0.0,
) -> Judgement:
    """By blocks that had no part in choosing the arm: the choice costs the interval nothing.
    `of_visits`: the variance of a visit; 0 where arms took turns."""
    arms = [blocks.get(name_of(each), ()) for each in (OFF, arm)]
    sent = {name_of(each): valid_records(its) for each, its in zip((OFF, arm), arms, strict=True)}
    failures, few_failed = assess_arms({name: each for name, each in sent.items() if each})
    off, own = valid_records(paired_blocks(*arms)), paired_blocks(*reversed(arms))
    records = valid_records(own)
    counted = [each.counted for each in own if each.counted is not None]
    written = [each.written for each in own if each.written is not None]
    evidence = make_evidence(
        off,
        records,
        level=LEVEL,
        margin=rules.margin,
        problems=failures,
        is_valid=few_failed,
        ttft_bound="ttft" in (rules.objective.slo or {}),
        counted=Acceptance.total(counted) if counted else None,
        written=Written.total(written) if written else None,
        text_floor=text_floor,
        is_lossy=arm.is_lossy,
        method=arm.method,
        load=rules.load_name,
        concurrency=rules.concurrency,
        has_idle_slots=not rules.fills_slots,
        memory=rules.memory.get(proposer_name(arm)),
        pairing=rules.pairing.get(proposer_name(arm)),
    )
    if of_visits:
        evidence = evidence_of_visits(evidence, of_visits)
    texts = [each for each in (evidence.texts, texts_of(arm, raced)) if each is not None]
    every = [each for its in sent.values() for each in its if not each.is_warmup]
    evidence = replace(
        evidence,
        # As in the problems: requests that failed count in blocks without one beside them too.
        error_rate=sum(not each.ok for each in every) / len(every) if every else 0.0,
        # Texts had no part in choosing the arm, so those of the race count too.
        texts=texts[0] + texts[1] if len(texts) == 2 else next(iter(texts), None),
        unquantized_acceptance=_unquantized(arm, evidence, raced),
    )
    verdict = decide(evidence, margin=rules.margin)
    is_other = finding_on(evidence) is TextFinding.OTHER  # whatever the objective says of times
    if rules.objective.name != "e2e" and evidence.e2e is not None and not is_other:
        ratio = rules.objective.ratio(off, records, level=evidence.e2e.level)
        ratio = with_visits(ratio, of_visits)
        if ratio is not None and ratio.low is not None:
            speedup = f"{rules.objective.name}: speedup {ratio.estimate:.2f} "
            speedup += f"[{ratio.low:.2f}, {ratio.high:.2f}]"
            verdict = _weighed(verdict, speedup, zone(ratio, rules.margin))
    return Judgement(evidence, verdict)


def _weighed(verdict: Verdict, objective: str, where: Zone) -> Verdict:
    """Requests from end to end decide. Where the objective clearly says the opposite, nothing is
    decided: a gain that costs the other is not shipped unasked."""
    contrary = Zone.WIN if verdict.decision == DONT_SHIP else Zone.LOSE
    if verdict.decision == INCONCLUSIVE or where is not contrary:
        return replace(verdict, reasons=(*verdict.reasons, objective))
    reason = f"{objective}, against requests end to end: choose by what was promised"
    return verdict.stopped(INCONCLUSIVE, (*verdict.reasons, reason))


def _unquantized(
    arm: Speculation, evidence: Evidence, raced: Mapping[str, Sequence[Block]]
) -> float | None:
    """The acceptance rate that the same draft would have at full precision. Both are compared at a
    draft length that both were measured at, in the first blocks, which have the same prompts."""
    if arm.quantization == "none" or evidence.acceptance is None:
        return None
    for k in range(MAX_K, 0, -1):
        quantized, full = (
            count_drafts([each for each in raced.get(name_of(one), ()) if each.block < 2])[0].rate
            for one in (replace(arm, k=k), replace(arm, k=k, quantization="none"))
        )
        if quantized is not None and full is not None:
            return evidence.acceptance.rate + full - quantized
    return None

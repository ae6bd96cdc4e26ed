"""What to measure next under one load, from what was measured so far. Pure.

First every proposer at its longest draft (and, where nobody tells what steps cost, at a short
one), beside off: that predicts all arms. Then the best of the predictions run in blocks beside
off; an arm that is clearly behind the leader drops out; and when one is left, or those left are
as good as each other, the leader runs on against off until the verdict is clear.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outdraft.decide.evidence import Evidence, Memory, Pairing
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, Verdict, decide
from outdraft.measure.evidence import make_evidence
from outdraft.measure.failures import failures_of
from outdraft.records import Record
from outdraft.speculation import MAX_K, OFF, Speculation
from outdraft.stats import MIN_BLOCKS, Look, Ratio, Zone, plan_looks, zone
from outdraft.tune.arm import by_proposer, name_of, proposer_name
from outdraft.tune.forecast import counts_of, forecast, sum_counts
from outdraft.tune.journal import Block
from outdraft.tune.objective import Objective

_SLACK = 0.12  # predictions this much below the best still race
_EARLY_BLOCKS, _FAR_BEHIND = 3, 0.10  # before there are intervals, only what is far behind drops
_SAME = 0.03  # arms within this of each other are as good as each other
_NUM_LOOKS = 4
_DRAWS = 400  # of the bootstrap, while the race goes on; verdicts have the usual number


@dataclass(frozen=True, slots=True)
class Rules:
    objective: Objective
    num_profile: int = 2  # blocks of the first part
    max_finalists: int = 3
    max_blocks: int = 20
    margin: float = 0.01
    load_name: str = "this load"
    memory: Mapping[str, Memory] = field(default_factory=dict)  # by the proposer's name
    pairing: Mapping[str, Pairing] = field(default_factory=dict)


@dataclass(slots=True)
class Standing:
    """Of one load: everything that follows from its blocks."""

    predicted: dict[str, float] = field(default_factory=dict)
    calibrated: tuple[str, ...] = ()  # arms that the predictions were made from
    finalists: tuple[Speculation, ...] = ()
    measured: dict[str, Ratio] = field(default_factory=dict)  # finalists, over off
    dropped: dict[str, str] = field(default_factory=dict)  # name → why
    failed: dict[str, str] = field(default_factory=dict)  # name → why
    alive: tuple[Speculation, ...] = ()
    best: Speculation | None = None
    evidence: Evidence | None = None
    verdict: Verdict | None = None
    next_arms: tuple[Speculation, ...] = ()  # off first; () when all is done
    next_block: int = 0
    is_clear: bool = False


@dataclass(slots=True)
class Known:
    """What was worked out already: of blocks that are there it stays the same."""

    ratios: dict[tuple[str, str, int], Ratio | None] = field(default_factory=dict)
    judged: dict[tuple[str, int, int], tuple[Evidence, Verdict]] = field(default_factory=dict)
    predicted: dict[tuple[tuple[str, ...], ...], dict[str, float]] = field(default_factory=dict)


def stand(
    arms: Sequence[Speculation],
    blocks: Mapping[str, Sequence[Block]],  # name of an arm, off too → its blocks in order
    failed: Mapping[str, str],
    rules: Rules,
    known: Known,
) -> Standing:
    """Where the race stands, and what it needs next.

    `known` is filled, and makes the next call quick.
    """
    standing = Standing(failed=dict(failed))
    able = [arm for arm in arms if name_of(arm) not in failed]
    # One that failed later has told what its first blocks have told.
    told = [
        each for each in arms if len(_first(blocks, each, rules.num_profile)) == rules.num_profile
    ]
    usable = [arm for arm in arms if arm in able or arm in told]
    profiled = _profiled(usable, blocks)
    standing.calibrated = tuple(map(name_of, profiled))
    for number in range(rules.num_profile):
        missing = _missing((OFF, *profiled), blocks, failed, number)
        if missing:
            standing.next_arms, standing.next_block = missing, number
            return standing
    early = {name_of(arm): _first(blocks, arm, rules.num_profile) for arm in (OFF, *profiled)}
    off = early.pop(name_of(OFF))
    key = (tuple(map(name_of, usable)), standing.calibrated)
    if key not in known.predicted:
        known.predicted[key] = forecast(usable, off, early, rules.objective.name)
    standing.predicted = known.predicted[key]
    standing.finalists = _finalists(able, standing.predicted, rules)
    standing.alive = standing.finalists
    for number in range(rules.num_profile, rules.max_blocks + 1):
        _drop(standing, blocks, rules, number, known)
        _judge(standing, blocks, rules, number, known)
        if standing.is_clear or number == rules.max_blocks or not standing.alive:
            return standing
        racing = [arm for arm in standing.alive if _entered(arm, blocks, failed, rules) <= number]
        missing = _missing((OFF, *racing), blocks, failed, number)
        if missing:
            standing.next_arms, standing.next_block = missing, number
            return standing
    raise AssertionError("the last block returns")


def _profiled(
    usable: Sequence[Speculation], blocks: Mapping[str, Sequence[Block]]
) -> list[Speculation]:
    """The longest draft of every proposer; a short one too where step costs are not told."""
    told = any(each.step_seconds for each in blocks.get(name_of(OFF), ()))
    chosen = []
    for members in by_proposer(usable).values():
        chosen.append(members[-1])
        if not told and len(members) > 2 and blocks.get(name_of(OFF)):
            chosen.append(members[len(members) // 3])
    return chosen


def _finalists(
    able: Sequence[Speculation], predicted: Mapping[str, float], rules: Rules
) -> tuple[Speculation, ...]:
    known = sorted(
        (arm for arm in able if name_of(arm) in predicted),
        key=lambda arm: (-predicted[name_of(arm)], arm.k),
    )
    if not known:
        return tuple(able[: rules.max_finalists])
    best = predicted[name_of(known[0])]
    near = [arm for arm in known if predicted[name_of(arm)] >= best * (1 - _SLACK)]
    return tuple(near[: rules.max_finalists])


def _entered(
    arm: Speculation,
    blocks: Mapping[str, Sequence[Block]],
    failed: Mapping[str, str],
    rules: Rules,
) -> int:
    """The block from which on it races. One that takes the place of another comes in where that
    one failed: blocks of off from long before say nothing of the machine it runs on now."""
    own = [each.block for each in blocks.get(name_of(arm), ()) if each.block >= rules.num_profile]
    if own:
        return min(own)
    ends = [each.block + 1 for name in failed for each in blocks.get(name, ())]
    return max([rules.num_profile, *ends])


def _missing(
    arms: Sequence[Speculation],
    blocks: Mapping[str, Sequence[Block]],
    failed: Mapping[str, str],
    number: int,
) -> tuple[Speculation, ...]:
    """Those without block `number`. Who goes first changes from block to block."""
    have = {
        name_of(arm)
        for arm in arms
        if any(each.block == number for each in blocks.get(name_of(arm), ()))
    }
    left = [arm for arm in arms if name_of(arm) not in have and name_of(arm) not in failed]
    return tuple(left if number % 2 == 0 else left[::-1])


def _first(blocks: Mapping[str, Sequence[Block]], arm: Speculation, count: int) -> list[Block]:
    return [each for each in blocks.get(name_of(arm), ()) if each.block < count]


def records_of(
    blocks: Mapping[str, Sequence[Block]], arm: Speculation, before: int | None = None
) -> list[Record]:
    return [record for block in _fit(blocks, arm, before) for record in block.records]


def _fit(
    blocks: Mapping[str, Sequence[Block]], arm: Speculation, before: int | None
) -> list[Block]:
    """Those before number `before`; where the client was unfit to measure they are left out."""
    return [
        block
        for block in blocks.get(name_of(arm), ())
        if (before is None or block.block < before) and not block.problems
    ]


def _ratio(
    baseline: Speculation,
    candidate: Speculation,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    known: Known,
) -> Ratio | None:
    """Over the blocks before `number`."""
    key = (name_of(baseline), name_of(candidate), number)
    if key not in known.ratios:
        known.ratios[key] = rules.objective.ratio(
            records_of(blocks, baseline, number),
            records_of(blocks, candidate, number),
            draws=_DRAWS,
        )
    return known.ratios[key]


def _drop(
    standing: Standing,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    worked_out: Known,
) -> None:
    """Looks at the blocks before `number`."""
    ratios = {
        name_of(arm): _ratio(OFF, arm, blocks, rules, number, worked_out) for arm in standing.alive
    }
    standing.measured |= {name: ratio for name, ratio in ratios.items() if ratio is not None}
    known = [
        arm
        for arm in standing.alive
        if (ratio := ratios[name_of(arm)]) is not None and ratio.num_blocks >= _EARLY_BLOCKS
    ]
    if not known:
        # Nobody has run long enough: the prediction leads.
        _lead(standing, standing.alive[0] if standing.alive else None)
        return

    def speed(arm: Speculation) -> float:
        ratio = ratios[name_of(arm)]
        return 0.0 if ratio is None else ratio.estimate

    leader = max(known, key=lambda arm: (speed(arm), -arm.k))
    _lead(standing, leader)
    for arm in known:
        name = name_of(arm)
        if arm == leader:
            continue
        lead = _ratio(arm, leader, blocks, rules, number, worked_out)
        if lead is None:
            continue
        if lead.low is not None and lead.low > 1:
            said = f"{name_of(leader)} is {lead.estimate:.2f}x [{lead.low:.2f}, {lead.high:.2f}]"
            standing.dropped[name] = f"{said} of it"
        elif lead.low is None and lead.estimate > 1 + _FAR_BEHIND:
            standing.dropped[name] = (
                f"{name_of(leader)} is {lead.estimate:.2f}x of it after {lead.num_blocks} blocks"
            )
    standing.alive = tuple(arm for arm in standing.alive if name_of(arm) not in standing.dropped)


def _lead(standing: Standing, leader: Speculation | None) -> None:
    """A verdict on the one that led before says nothing of this one."""
    if leader != standing.best:
        standing.evidence = standing.verdict = None
    standing.best = leader


def _judge(
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
    others = [arm for arm in standing.alive if arm != best]
    leads = [_ratio(arm, best, blocks, rules, number, known) for arm in others]
    standing.is_clear = all(
        lead is not None and lead.low is not None and zone(lead, _SAME) is Zone.TIE
        for lead in leads
    )


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
    own = _fit(blocks, standing.best, before)
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

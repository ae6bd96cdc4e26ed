"""What to measure next under one load, from what was measured so far. Pure.

First every proposer at its longest draft (and, where nobody tells what steps cost, at a short
one), beside off: that predicts all arms. Then the best of the predictions run in blocks beside
off. After each block it is worked out anew what is believed of every arm (`belief.py`): the leader
runs on, and beside it those that might still be better by more than matters, also ones that have
not run yet. When there are none, the leader runs against off until the verdict is clear. Only those
race for which there is time to be judged (`time_left.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import by_proposer, name_of, proposer_name
from outdraft.tune.belief import believe, expected
from outdraft.tune.forecast import forecast
from outdraft.tune.journal import Block
from outdraft.tune.judging import judge
from outdraft.tune.standing import Known, Rules, Standing, fit, ratio_between
from outdraft.tune.time_left import TimeLeft

_EARLY_BLOCKS = 3  # an arm with fewer does not lead
_SAME = 0.03  # arms within this of each other are as good as each other
_LUCK = 1.5  # standard deviations within which an arm might be better than is believed
_FEW_DRAWS = 2  # where only the estimate is wanted


def stand(
    arms: Sequence[Speculation],
    blocks: Mapping[str, Sequence[Block]],  # name of an arm, off too → its blocks in order
    failed: Mapping[str, str],
    rules: Rules,
    known: Known,
    left_s: float | None = None,
) -> Standing:
    """Where the race stands, and what it needs next.

    `known` is filled, and makes the next call quick. `left_s` is the time there is, if limited.
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
    standing.forecast = standing.predicted = known.predicted[key]
    standing.is_profiled = True
    for number in range(rules.num_profile, rules.max_blocks + 1):
        time = None
        if left_s is not None and not _is_past(blocks, number):
            time = TimeLeft.before(number, blocks, left_s)
        _choose(standing, able, blocks, rules, number, known, time)
        judge(standing, blocks, rules, number, known)
        if standing.is_clear or number == rules.max_blocks or not standing.alive:
            return standing
        if _is_past(blocks, number):  # who ran then was decided then
            continue
        racing = standing.alive if time is None else time.enough_for(standing.alive)
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


def _is_past(blocks: Mapping[str, Sequence[Block]], number: int) -> bool:
    return any(each.block > number for own in blocks.values() for each in own)


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


def _choose(
    standing: Standing,
    able: Sequence[Speculation],
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    known: Known,
    time: TimeLeft | None,
) -> None:
    """Who leads after the blocks before `number`, and who races in it."""
    raced = [arm for arm in able if _later(blocks, arm, rules, number)]
    for arm in raced:
        ratio = ratio_between(OFF, arm, blocks, rules, number, known)
        if ratio is not None:
            standing.measured[name_of(arm)] = ratio
    # Where nothing could be predicted, all are as good as off until they are measured.
    forecast = standing.forecast or dict.fromkeys(map(name_of, able), 1.0)
    held = [arm for arm in able if name_of(arm) in forecast]
    if not held:
        _lead(standing, None)
        return
    told = (
        {name_of(arm): forecast[name_of(arm)] for arm in held},
        {name_of(arm): proposer_name(arm) for arm in held},
        {name_of(arm): _gains(arm, blocks, rules, number, known) for arm in raced},
    )
    belief = believe(*told)
    if standing.forecast:
        standing.predicted = {**standing.forecast, **expected(belief, *told)}
    ranked = sorted(held, key=lambda arm: (-belief.of(name_of(arm)), arm.k))
    seasoned = [arm for arm in ranked if len(_later(blocks, arm, rules, number)) >= _EARLY_BLOCKS]
    leader = (seasoned or ranked)[0]
    if time is not None and not time.is_enough_for(leader):
        # Of those that might be as good, one that can be judged is worth more.
        judgeable = [
            arm
            for arm in seasoned
            if time.is_enough_for(arm)
            and belief.might_lead_by(name_of(arm), name_of(leader), _LUCK) > 0
        ]
        leader = (judgeable or [leader])[0]
    _lead(standing, leader)
    rivals = [
        arm
        for arm in ranked
        if arm != leader
        and belief.might_lead_by(name_of(arm), name_of(leader), _LUCK) > log(1 + _SAME)
    ]
    standing.alive = (leader, *rivals)[: rules.max_finalists]
    standing.finalists = tuple(raced)
    standing.dropped = {
        name_of(arm): _why_dropped(arm, leader, blocks, rules, number, known)
        for arm in raced
        if arm not in standing.alive
    }


def _why_dropped(
    arm: Speculation,
    leader: Speculation,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    known: Known,
) -> str:
    lead = ratio_between(arm, leader, blocks, rules, number, known)
    said = f"hardly better than {name_of(leader)} by more than {100 * _SAME:.0f} %"
    if lead is None:
        return said
    interval = "" if lead.low is None else f" [{lead.low:.2f}, {lead.high:.2f}]"
    return f"{said}, which is {lead.estimate:.2f}x{interval} of it after {lead.num_blocks} blocks"


def _gains(
    arm: Speculation,
    blocks: Mapping[str, Sequence[Block]],
    rules: Rules,
    number: int,
    known: Known,
) -> dict[int, float]:
    """Logarithms of what each block said alone. The first ones made the predictions already."""
    off = {each.block: each for each in _later(blocks, OFF, rules, number)}
    found = {}
    for block in _later(blocks, arm, rules, number):
        key = (name_of(arm), block.block)
        if key not in known.gains and block.block in off:
            base = off[block.block].records
            ratio = rules.objective.ratio(base, block.records, draws=_FEW_DRAWS)
            known.gains[key] = None if ratio is None else log(ratio.estimate)
        gain = known.gains.get(key)
        if gain is not None:
            found[block.block] = gain
    return found


def _later(
    blocks: Mapping[str, Sequence[Block]], arm: Speculation, rules: Rules, number: int
) -> list[Block]:
    """Behind those of the first part."""
    return [each for each in fit(blocks, arm, number) if each.block >= rules.num_profile]


def _lead(standing: Standing, leader: Speculation | None) -> None:
    """A verdict on the one that led before says nothing of this one."""
    if leader != standing.best:
        standing.evidence = standing.verdict = None
    standing.best = leader

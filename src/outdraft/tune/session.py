"""A tuning run: load after load, step after step, until all is clear or the budget is spent.

What is measured next follows from the journal alone (`race.stand`), and so does what the budget
still allows: durations are in the journal too. A run that is killed and started again therefore
goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from outdraft.errors import OptionError
from outdraft.measure.summary import meets
from outdraft.speculation import OFF, Speculation
from outdraft.stats import percentile
from outdraft.tune.arm import Load, name_of, proposer_name
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.judging import judge_now
from outdraft.tune.race import stand
from outdraft.tune.standing import Known, Rules, Standing

Measure = Callable[[Load, Speculation, int], Block | Failure]
Prepare = Callable[[Sequence[Speculation]], None]  # these are measured next, one after the other
_FAR = 2.0  # times its limits: an SLO that no first block meets even so is not met by any arm
_MAIN_WEIGHT = 2.0  # the first load's part of the budget, against 1 for each other one


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to show after each step."""

    load: Load
    standing: Standing
    arm: Speculation | None  # measured now; None: between two
    elapsed_s: float
    budget_s: float


@dataclass(frozen=True, slots=True)
class Search:
    arms: tuple[Speculation, ...]
    loads: tuple[Load, ...]
    rules: Rules
    budget_s: float
    # Blocks of the profile by the name of a load, where they are not the rules' number: a large
    # block tells as much as two small ones.
    num_profile: Mapping[str, int] = field(default_factory=dict)
    has_schedule: bool = False  # the engine can change the draft length by its load
    keeps_engines: bool = False  # one start serves every draft length of a proposer, to the end


@dataclass(frozen=True, slots=True)
class Finished:
    load: Load
    standing: Standing
    is_out_of_time: bool  # there was more to measure


def search(
    settings: Search,
    journal: Journal,
    measure: Measure,
    tell: Callable[[Told], None] = lambda told: None,
    prepare: Prepare = lambda arms: None,
) -> list[Finished]:
    finished = []
    for place, load in enumerate(settings.loads):
        allowed = _share(settings, journal, place)
        finished.append(_run_load(settings, load, journal, measure, allowed, tell, prepare))
        if place == 0:
            _check_slo(settings, journal, load)
    return finished


def _share(settings: Search, journal: Journal, place: int) -> float:
    """Seconds for this load: its part of what those before it have left."""
    before = sum(journal.elapsed_s(load.name) for load in settings.loads[:place])
    left = settings.budget_s - before
    ours = _MAIN_WEIGHT if place == 0 else 1.0
    weights = ours + len(settings.loads) - place - 1
    return left * ours / weights


def _run_load(
    settings: Search,
    load: Load,
    journal: Journal,
    measure: Measure,
    allowed_s: float,
    tell: Callable[[Told], None],
    prepare: Prepare,
) -> Finished:
    num_profile = settings.num_profile.get(load.name, settings.rules.num_profile)
    rules = replace(settings.rules, load_name=load.name, num_profile=num_profile)
    known = Known()
    while True:
        blocks = {
            name_of(arm): journal.of(load.name, name_of(arm)) for arm in (OFF, *settings.arms)
        }
        failed = {
            name: each.reason
            for (where, name), each in journal.failures.items()
            if where == load.name
        }
        left_s = allowed_s - journal.elapsed_s(load.name)
        standing = stand(settings.arms, blocks, failed, rules, known, left_s)
        tell(Told(load, standing, None, journal.elapsed_s(), settings.budget_s))
        if standing.next_block > 0 and load == settings.loads[0]:
            _check_slo(settings, journal, load, _FAR)
        if name_of(OFF) in failed:  # nothing can be compared any more
            _check_baseline(settings, journal, load, failed[name_of(OFF)])
            judge_now(standing, blocks, rules)
            return Finished(load, standing, is_out_of_time=False)
        if not standing.next_arms:
            return Finished(load, standing, is_out_of_time=False)
        needed = _expected_s(settings, journal, load, standing.next_arms)
        # Without a profile there is no answer at all: the first load may take all for it.
        is_vital = not standing.is_profiled and load == settings.loads[0]
        if journal.elapsed_s(load.name) + needed > (settings.budget_s if is_vital else allowed_s):
            _check_enough(settings, journal, load, standing)
            judge_now(standing, blocks, rules)
            return Finished(load, standing, is_out_of_time=True)
        # One at a time: a run that was killed within a block asks the same question here.
        arm = standing.next_arms[0]
        tell(Told(load, standing, arm, journal.elapsed_s(), settings.budget_s))
        prepare(standing.next_arms)
        journal.add(measure(load, arm, standing.next_block))


def _check_baseline(settings: Search, journal: Journal, load: Load, reason: str) -> None:
    """Without it the first load has no answer, nor has the run."""
    if load == settings.loads[0] and not journal.of(load.name, name_of(OFF)):
        raise OptionError(
            f"the baseline cannot be measured at {load.name}: {reason}; to try again remove "
            f"{journal.path}"
        )


def _expected_s(
    settings: Search, journal: Journal, load: Load, arms: Sequence[Speculation]
) -> float:
    return sum(_block_s(settings, journal, load, arm) for arm in arms)


def _block_s(settings: Search, journal: Journal, load: Load, arm: Speculation) -> float:
    """What its next block should take: as its last one, here or under another load, else as the
    middle one of all here. A start counts where the engine is not up already."""
    own = journal.of(load.name, name_of(arm)) or [
        each for each in journal.blocks.values() if each.arm == name_of(arm)
    ]
    siblings = {name_of(each) for each in (OFF, *settings.arms)
                if proposer_name(each) == proposer_name(arm)}  # fmt: skip
    is_up = settings.keeps_engines and any(each.arm in siblings for each in journal.blocks.values())
    like = own[-1:] or [each for each in journal.blocks.values() if each.load == load.name]
    spent = [each.duration_s - (each.start_s if is_up else 0.0) for each in like]
    return percentile(spent, 0.5) if spent else 0.0


def _check_enough(settings: Search, journal: Journal, load: Load, standing: Standing) -> None:
    if standing.is_profiled or load != settings.loads[0]:
        return
    spent = journal.elapsed_s(load.name)
    needed = spent + _expected_s(settings, journal, load, standing.next_arms)
    raise OptionError(
        f"--budget {settings.budget_s:g}s is too small: {spent:.0f} s at {load.name} did not do "
        f"for the first blocks of every proposer; give {_rounded(needed)} or more, or fewer methods"
    )


def _rounded(seconds: float) -> str:
    return f"{-(-int(2 * seconds) // 60)}m"


def _check_slo(settings: Search, journal: Journal, load: Load, times: float = 1.0) -> None:
    """Refuses one that no request has met, nor any of so many times its limits."""
    slo = settings.rules.objective.slo
    if not slo:
        return
    blocks = [each for each in journal.blocks.values() if each.load == load.name]
    done = [each for block in blocks for each in block.records if each.ok]
    loose = {name: times * limit for name, limit in slo.items()}
    if done and not any(meets(each, loose) for each in done):
        told = ", ".join(f"{name}={limit:g}" for name, limit in slo.items())
        more = f", nor {times:g} times that" if times > 1 else ""
        raise OptionError(
            f"--slo {told}: none of the {len(done)} requests of any arm met it{more}; loosen it, "
            "and the same --out goes on with what was measured"
        )

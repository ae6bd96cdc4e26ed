"""How much time a search needs to judge every load, and what budget would have done. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from outdraft.durations import format_duration
from outdraft.speculation import OFF, Speculation
from outdraft.stats.percentiles import percentile
from outdraft.tune.arm import FINAL, Load, by_proposer, name_of
from outdraft.tune.final import MIN_FINAL_BLOCKS
from outdraft.tune.journal import SHORTEST_START_S, Journal
from outdraft.tune.pace import Pace
from outdraft.tune.ranking import rank_proposers
from outdraft.tune.rules import SearchSettings
from outdraft.tune.shares import MAIN_WEIGHT
from outdraft.tune.visits import MIN_VISIT_BLOCKS, NUM_OFF_VISITS

_MARGIN = 1.1  # blocks take longer or shorter than the last one did
_ARM = 0.75  # of off's time, that a block of an arm takes as a rule


@dataclass(frozen=True, slots=True)
class Needs:
    """Of a search at some pace. Seconds."""

    settings: SearchSettings
    pace: Pace

    @property
    def num_engines(self) -> int:
        """That are started for the profile: off, and every proposer at one or two lengths."""
        return 1 + len(self._profiled) + len(self.settings.cards.others)

    @property
    def _profiled(self) -> list[Speculation]:
        proposers = by_proposer(self.settings.arms).values()
        longest = [members[-1] for members in proposers]
        if self.settings.shares_process:  # it reports what steps cost
            return longest
        return [*longest, *(members[0] for members in proposers if len(members) > 2)]

    def profile_s(self, load: Load) -> float:
        num_blocks = 1 if self.settings.num_profile.get(load.name) == 1 else 2
        off_s = self.pace.block_s.get(load.name, 0.0)
        return num_blocks * (1 + _ARM * len(self._profiled)) * off_s

    def final_s(self, load: Load, num_blocks: int = MIN_FINAL_BLOCKS) -> float:
        block_s = self.pace.block_s
        each_s = block_s.get(load.in_part(FINAL).name, block_s.get(load.name, 0.0))
        return (1 + _ARM) * num_blocks * each_s

    @property
    def starts_s(self) -> float:
        in_final = NUM_OFF_VISITS + 2 if self.settings.in_visits else 0
        return (self.num_engines + in_final) * self.pace.start_s

    @property
    def least_s(self) -> float:
        """With which every load is judged, by as few blocks as possible."""
        loads, in_visits = self.settings.loads, self.settings.in_visits
        finals_s = [
            6 * MIN_VISIT_BLOCKS * self.pace.block_s.get(load.name, 0.0)
            if in_visits
            else self.final_s(load)
            for load in loads
        ]
        return self.starts_s + sum(map(self.profile_s, loads)) + sum(finals_s)

    def enough_s(self, num_final: Mapping[str, int]) -> float:
        """The budget in which the finals of all loads have so many blocks each, by the shares that
        loads have of it. The race may take half of a load's time."""
        loads = self.settings.loads
        if self.settings.in_visits:
            return _MARGIN * self.least_s
        shares = len(loads) - 1 + MAIN_WEIGHT
        wanted = []
        for place, load in enumerate(loads):
            final_s = self.final_s(load, num_final.get(load.name, MIN_FINAL_BLOCKS))
            final_s /= (1 + _ARM) / 2  # an arm may be no faster than off
            own_s = max(self.profile_s(load) + final_s, 2 * final_s)
            if self.settings.shares_process and place == 0:  # starts are in the first load's time
                own_s = max(self.starts_s + self.profile_s(load) + final_s, 2 * final_s)
            wanted.append(own_s * shares / (MAIN_WEIGHT if place == 0 else 1.0))
        starts_s = 0.0 if self.settings.shares_process else self.starts_s
        return _MARGIN * max(starts_s + max(wanted), self.least_s)


def measured_pace(settings: SearchSettings, journal: Journal) -> Pace:
    """What starts and blocks took, off's where there are any; where there are none, as was guessed,
    and as much slower or faster as the others were."""
    guessed = settings.pace
    starts = [each for each in journal.each_start_s() if each >= SHORTEST_START_S]
    start_s = percentile(starts, 0.5) if starts else guessed.start_s
    parts = [load.in_part(part) for load in settings.loads for part in ("", FINAL)]
    block_s = {
        part.name: percentile(taken, 0.5) for part in parts if (taken := _taken(journal, part))
    }
    slower = [
        block_s[name] / guessed.block_s[name] for name in block_s if guessed.block_s.get(name)
    ]
    scale = percentile(slower, 0.5) if slower else guessed.slower(start_s)
    rest = {name: each * scale for name, each in guessed.block_s.items()}
    return Pace(start_s, {**rest, **block_s})


def _taken(journal: Journal, part: Load) -> list[float]:
    blocks = [
        each
        for each in journal.blocks.values()
        if each.load == part.name or (part.part and each.load.startswith(f"{part.name} of "))
    ]
    own = [each for each in blocks if each.arm == name_of(OFF)] or blocks
    return [each.duration_s - each.start_s for each in own]


def round_up(seconds: float) -> float:
    """To a budget that is easy to write."""
    step = 30 if seconds <= 600 else 60
    return float(step * ceil(seconds / step))


def time_words(needs: Needs, when: str = "") -> str:
    """What the search needs, with what to leave out where it does not fit. `when`: this is known,
    if not before the start."""
    settings, least_s = needs.settings, needs.least_s
    num_loads, budget = len(settings.loads), f"--budget {format_duration(settings.budget_s)}"
    loads = "1 load" if num_loads == 1 else f"{num_loads} loads"
    work = f"{needs.num_engines} engines to start, {loads} to judge"
    told = f"about {format_duration(round_up(least_s))} at least"
    if least_s <= settings.budget_s:
        return f"time{when}: {work}: {told}, of {budget}"
    words = f"time{when}: {work}: {told}, more than {budget}: some of it may be left out"
    flags, smaller = [], needs
    for flag, smaller in _smaller(needs):
        flags.append(flag)
        if smaller.least_s <= settings.budget_s:
            break
    if not flags:
        return words
    return f"{words}; about {format_duration(round_up(smaller.least_s))} with {' '.join(flags)}"


def _smaller(needs: Needs) -> Iterator[tuple[str, Needs]]:
    """A flag that leaves out a part, and what is left to do; each on top of those before."""
    settings = needs.settings

    def left(arms: Sequence[Speculation]) -> Needs:
        nonlocal settings
        settings = replace(settings, arms=tuple(arms))
        return replace(needs, settings=settings)

    quantizations = {arm.quantization for arm in settings.arms if arm.draft is not None}
    if len(quantizations) > 1:
        kept = next(each for each in ("int8", *sorted(quantizations)) if each in quantizations)
        arms = [arm for arm in settings.arms if arm.draft is None or arm.quantization == kept]
        yield f"--draft-quantization {kept}", left(arms)
    if len(settings.loads) > 1:
        main = settings.loads[0]
        settings = replace(settings, loads=(main,))
        flag = "--rate" if main.rate is not None else "--concurrency"
        yield f"{flag} {main.rate or main.concurrency:g}", replace(needs, settings=settings)
    if not settings.shares_process and len(ks := sorted({arm.k for arm in settings.arms})) > 2:
        k = ks[len(ks) // 2]
        yield f"--k {k}", left([arm for arm in settings.arms if arm.k == k])
    if len({arm.method for arm in settings.arms}) > 1:
        first = rank_proposers(settings.arms, ())[0]
        method = by_proposer(settings.arms)[first][0].method
        yield f"--methods {method}", left([arm for arm in settings.arms if arm.method == method])

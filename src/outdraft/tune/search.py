"""A search: profile, race and final of every load, then the schedule that follows from them.

The race chooses an arm. The final judges it against off, on requests that had no part in the choice
and in small blocks that alternate, so that its interval is neither optimistic nor widened.

What is measured next follows from the journal alone, and so does what the budget still allows:
durations are in the journal too. A search that was killed and is started again therefore continues
as if nothing had happened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from outdraft.decide.texts import Agreement
from outdraft.errors import OptionError
from outdraft.speculation import OFF, Schedule, Speculation
from outdraft.stats.ratios import MIN_BLOCKS
from outdraft.tune.arm import FINAL, SCHEDULE, Load, name_of, proposer_name
from outdraft.tune.final import MIN_FINAL_BLOCKS, num_final_blocks
from outdraft.tune.journal import Block, Failure, Journal, Start
from outdraft.tune.judging import judge
from outdraft.tune.marks import pair_to_repeat, round_to_repeat
from outdraft.tune.outcome import LoadOutcome, load_result
from outdraft.tune.progress import PROFILE, RACE, TEXTS, FiguresCache, Progress, figures_of
from outdraft.tune.race import Race, RaceCache, Standing
from outdraft.tune.ranking import by_rank, rank_proposers
from outdraft.tune.results import LoadResult
from outdraft.tune.rules import Rules, SearchSettings
from outdraft.tune.schedule import schedule_of, scheduled_arm
from outdraft.tune.shares import TimeShares
from outdraft.tune.slo import check_slo
from outdraft.tune.texts import beside_own_off, floor_of, next_again, other_texts, texts_part
from outdraft.tune.visits import plan_visits, visited_off

Measure = Callable[[Load, Speculation, int], Block | Failure]  # one block of an arm under a load
# Starts one engine of the arms that are measured next; None where all are up that can be
Prepare = Callable[[Load, Sequence[Speculation]], Start | None]

_FAR = 2.0  # an SLO that no request of the first blocks meets at this many times its limits
_RACE_SHARE = 0.5  # of a load's time: the race takes no more, the rest is for the final
_PROFILE_SHARE = 0.5  # of a load's time: if the first blocks took more, they are the profile


@dataclass(frozen=True, slots=True)
class Search:
    """Measures whatever is next, and writes it to the journal."""

    settings: SearchSettings
    journal: Journal
    measure: Measure
    show: Callable[[Progress], None] | None = None
    prepare: Prepare = lambda load, arms: None
    finished: list[LoadResult] = field(default_factory=list)  # loads, while it runs
    figures: FiguresCache = field(default_factory=FiguresCache)

    @property
    def shares(self) -> TimeShares:
        return TimeShares(self.settings, self.journal)

    def run(self) -> tuple[list[LoadOutcome], Schedule]:
        """Load after load, then the schedule that follows from their results."""
        if not self.settings.shares_process:
            self._profile_loads()
        is_visited = self._run_visits() if self.settings.in_visits else None
        outcomes: list[LoadOutcome] = []
        for place, load in enumerate(self.settings.loads):
            ranked = rank_proposers(self.settings.arms, [each.standing for each in outcomes])
            share_s = self.shares.share_s(place)
            outcomes.append(self._run_load(load, share_s, is_visited, ranked))
            self.finished.append(outcomes[-1].result)
            if load == self.settings.loads[0]:
                check_slo(self.settings, self.journal)
        best, main = outcomes[0].standing.best, outcomes[0].result
        if best is None or not main.pays_for_all:
            return outcomes, ()
        schedule = schedule_of([each.result for each in outcomes], proposer_name(best))
        if not self.settings.in_visits:  # it would be a visit for every block
            self.run_schedule(best, schedule)
        return outcomes, schedule

    def run_schedule(self, best: Speculation, schedule: Schedule) -> None:
        """Measures the schedule beside off, where the engine has one: at each load as many blocks
        as an interval needs, while there is time."""
        arm = scheduled_arm(best, schedule, self.settings)
        if arm is None:
            return
        for load in self.settings.loads:
            part = load.in_part(SCHEDULE, name_of(arm))
            elsewhere_s = self.shares.elapsed_s() - self.shares.elapsed_s(part.name)
            left_s = self.shares.budget_s - elsewhere_s
            if not self.run_beside_off(part, Standing(best=arm), MIN_BLOCKS, left_s):
                return

    def _show(
        self,
        phase: str,
        load: Load,
        standing: Standing,
        arm: Speculation | None,
        entry: Block | Failure | Start | None = None,
        num_blocks: int | None = None,
    ) -> None:
        if self.show is None:
            return
        figures = figures_of(self.settings, phase, load, standing.best, self.journal, self.figures)
        self.show(Progress(
            phase, load, standing, arm, self.journal.elapsed_s(), self.settings.budget_s,
            self.settings.arms, figures, tuple(self.finished), entry, num_blocks,
        ))  # fmt: skip

    def _measure(
        self,
        phase: str,
        load: Load,
        standing: Standing,
        arm: Speculation,
        *,
        where: Load | None = None,  # the part of the journal, where that is not the load's own
        is_again: bool = False,  # it was marked
        num_blocks: int | None = None,
    ) -> None:
        """The next block of the arm, shown before it and after."""
        self._show(phase, load, standing, arm, num_blocks=num_blocks)
        entry = self.measure(replace(where or load, is_again=is_again), arm, standing.next_block)
        if is_again and isinstance(entry, Block):
            entry = replace(entry, is_again=True)
        self.journal.add(entry)
        self._show(phase, load, standing, None, entry, num_blocks)

    def _run_load(
        self, load: Load, allowed_s: float, is_visited: bool | None, ranked: Sequence[str]
    ) -> LoadOutcome:
        """`is_visited`: whether all visits were made, where the final is in visits. `ranked`:
        proposers, those first that are tried where there is not time for all."""
        rules = self._rules(load)
        part, off, cache = load.in_part(FINAL), name_of(OFF), RaceCache()
        is_whole, best = True, None
        while True:
            standing = self._run_race(load, rules, allowed_s, cache, ranked)
            best = standing.best
            if best is None:
                is_whole = standing.failed.keys() >= set(map(name_of, self.settings.arms))
                is_whole = is_whole or off in standing.failed
                break
            part = load.in_part(FINAL, name_of(best))
            if off in standing.failed:  # judged by the blocks of the final that there are
                break
            num_blocks = num_final_blocks(standing.measured.get(name_of(best)))
            elsewhere_s = self.shares.spent_s(load) - self.shares.elapsed_s(part.name)
            left_s = allowed_s - elsewhere_s
            if is_visited is None:
                is_whole = self.run_beside_off(part, standing, num_blocks, left_s)
                if is_whole:
                    self.repeat_pairs(part, standing, num_blocks, left_s)
            else:
                is_whole = is_visited
            self._ask_again(load, part)
            failed = self._failures_in(part)
            if off in failed or name_of(best) not in failed:  # else another one leads
                standing = replace(standing, failed={**standing.failed, **failed})
                break
        if best is not None and (final := self._blocks_of(part)).get(name_of(best)):
            of_visits = 0.0
            if self.settings.in_visits:
                final[off], of_visits = visited_off(self.journal, part)
            raced = beside_own_off(best, self._blocks_of(load), self._offs_of(load))
            judgement = judge(best, final, raced, rules, self._text_floor(load), of_visits)
            standing = replace(
                standing,
                evidence=judgement.evidence,
                verdict=judgement.verdict,
                is_clear=judgement.is_clear(rules.margin),
            )
        result = load_result(self.settings, load, standing, self.journal)
        return LoadOutcome(standing, not is_whole, result)

    def _failures_in(self, part: Load) -> dict[str, str]:
        """In which an arm is judged. An off that fails on another card than the first fails its
        arms alone."""
        failed, off = self.journal.failures_at(part.name), name_of(OFF)
        if off in failed and self.settings.cards.of_name(part.subject):
            failed[part.subject] = f"off failed on its card: {failed.pop(off)}"
        return failed

    def _offs_of(self, load: Load) -> dict[str, list[Block]]:
        """Of the race, by the arms that have another card than the first."""
        cards = self.settings.cards
        by_card = {card: self.journal.of(load.on(card).name, name_of(OFF)) for card in cards.others}
        arms = [arm for arm in self.settings.arms if cards.of(arm)]
        return {name_of(arm): by_card[cards.of(arm)] for arm in arms}

    def _measure_in_race(
        self, phase: str, load: Load, standing: Standing, arm: Speculation
    ) -> None:
        """On another card than the first, off goes before: an arm is compared with it alone."""
        journal, card = self.journal, 0 if arm.is_off else self.settings.cards.of(arm)
        beside, off, number = load.on(card), name_of(OFF), standing.next_block
        is_there = (beside.name, off, number) in journal.blocks
        if card and not is_there and off not in journal.failures_at(beside.name):
            self._measure(phase, load, standing, OFF, where=beside)
        if card and off in (failed := journal.failures_at(beside.name)):
            reason = f"off failed on its card: {failed[off]}"
            journal.add(Failure(load.name, name_of(arm), reason, 0.0))
        else:
            self._measure(phase, load, standing, arm)

    def _blocks_of(self, load: Load) -> dict[str, list[Block]]:
        names = [name_of(arm) for arm in (OFF, *self.settings.arms)]
        return {name: self.journal.of(load.name, name) for name in names}

    def _run_race(
        self,
        load: Load,
        rules: Rules,
        allowed_s: float,
        cache: RaceCache,
        ranked: Sequence[str] = (),
    ) -> Standing:
        """Until an arm is chosen, or the race has had its share of the time."""
        settings, journal, is_main = self.settings, self.journal, load == self.settings.loads[0]
        while True:
            self._ask_again(load)
            blocks = self._blocks_of(load)
            failed = journal.failures_at(load.name)
            for part in self.shares.finals(load):
                failed |= self._failures_in(part)
            others = other_texts(settings.arms, blocks, self._text_floor(load), self._offs_of(load))
            if failed.keys() | others.keys() != set(map(name_of, settings.arms)):
                failed |= others  # without any other arm, the best of them is judged by its texts
            spent_s = self.shares.raced_s(load)
            rules = replace(rules, num_profile=self._num_profile(blocks, load, allowed_s))
            # Without a profile there is no answer at all: the main load may take all time for it.
            profile_s = self.shares.budget_s if is_main else allowed_s
            arms = self.shares.startable(load, profile_s, ranked)
            if not arms and name_of(OFF) not in failed:
                return Standing(failed=failed)
            standing = Race(arms, blocks, failed, rules, cache, self._offs_of(load)).standing()
            phase = RACE if standing.is_profiled else PROFILE
            self._show(phase, load, standing, None)
            if is_main and standing.next_block > 0:
                check_slo(self.settings, self.journal, _FAR)
            if name_of(OFF) in failed:  # nothing can be compared any more
                if is_main and not blocks[name_of(OFF)]:
                    raise OptionError(
                        f"the baseline cannot be measured at {load.name}: "
                        f"{failed[name_of(OFF)]}; when that is mended, --retry-failed tries again"
                    )
                return standing
            race_s = min(_RACE_SHARE * allowed_s, profile_s - self.shares.final_s(load))
            most_s = race_s if standing.is_profiled else profile_s
            if self._repeat_round(phase, load, standing, most_s - spent_s):
                cache.clear()  # it is of blocks that do not change
                continue
            if not standing.next_arms or (settings.in_visits and standing.is_profiled):
                return standing
            needed_s = spent_s + sum(self.shares.block_s(load, arm) for arm in standing.next_arms)
            if needed_s > most_s:
                return standing
            # One arm at a time: a search that was killed within a block gets here again.
            if (start := self.prepare(load, by_rank(standing.next_arms, ranked))) is not None:
                journal.add(start)  # there may not be time for all others now
                self._show(phase, load, standing, None, start)
                continue
            self._measure_in_race(phase, load, standing, standing.next_arms[0])

    def _repeat_round(self, phase: str, load: Load, standing: Standing, left_s: float) -> bool:
        """Measures a marked block of the last whole round again, where there is time for it."""
        numbers = [each.block for each in self.journal.of(load.name, name_of(OFF))]
        number = standing.next_block - 1 if standing.next_arms else max(numbers, default=-1)
        again = round_to_repeat(self.journal, load, (OFF, *self.settings.arms), number)
        if self.settings.in_visits or not again or self.shares.block_s(load, again[0]) > left_s:
            return False
        now = replace(standing, next_block=number)
        self._measure(phase, load, now, again[0], is_again=True)
        return True

    def _profile_loads(self) -> None:
        """The first blocks of all loads, arm by arm: an engine that takes long to start, or to wake
        up, is up for all of them."""
        while True:
            wanted = {
                load: each for load in self.settings.loads if (each := self._first_blocks(load))
            }
            arms = [arm for standing in wanted.values() for arm in standing.next_arms]
            if not arms:
                return
            for load, standing in wanted.items():
                if arms[0] in standing.next_arms:
                    self._measure_in_race(PROFILE, load, standing, arms[0])

    def _run_visits(self) -> bool:
        """The finals of all loads, each engine being up for all of them. False where the time was
        over before."""
        journal, budget_s = self.journal, self.settings.budget_s
        leaders: dict[Load, Speculation] = {}
        while leaders != (now := self._leaders()):  # one that failed has a successor
            leaders = now
            for job in plan_visits(leaders, self.shares.visit_blocks(leaders)):
                failed = journal.failures_at(job.load.name).keys()
                if (job.load.name, name_of(job.arm), job.block) in journal.blocks or failed:
                    continue
                if journal.elapsed_s() + self.shares.block_s(job.load, job.arm) > budget_s:
                    return False
                best = leaders[job.load.in_part("")]
                standing = Standing(best=best, next_arms=(job.arm,), next_block=job.block)
                self._measure(FINAL, job.load, standing, job.arm)
        return True

    def _leaders(self) -> dict[Load, Speculation]:
        """By what the profile predicts."""
        budget_s = self.settings.budget_s
        standings = {
            load: self._run_race(load, self._rules(load), budget_s, RaceCache())
            for load in self.settings.loads
        }
        return {load: each.best for load, each in standings.items() if each.best is not None}

    def _rules(self, load: Load) -> Rules:
        return replace(self.settings.rules, load_name=load.name, concurrency=load.concurrency)

    def _first_blocks(self, load: Load) -> Standing | None:
        """Where the profile of a load stands; None where it is complete, or cannot be."""
        blocks, failed = self._blocks_of(load), self.journal.failures_at(load.name)
        num_profile = self._num_profile(blocks, load, self.settings.budget_s)
        rules = replace(self._rules(load), num_profile=num_profile)
        arms = self.shares.startable(self.settings.loads[0], self.settings.budget_s)
        standing = Race(arms, blocks, failed, rules, offs=self._offs_of(load)).standing()
        return None if standing.is_profiled or name_of(OFF) in failed else standing

    def _ask_again(self, load: Load, *parts: Load) -> None:
        """Off for its texts once more, where an arm has others under the load or in these parts."""
        again, journal, offs = texts_part(load), self.journal, self._offs_of(load)
        compared = [self._blocks_of(each) for each in (load, *parts)]
        while not journal.failures_at(again.name):
            asked = journal.of(again.name, name_of(OFF))
            if (number := next_again(self.settings.arms, compared, asked, offs)) is None:
                return
            self._measure(TEXTS, load, Standing(next_block=number), OFF, where=again)

    def _text_floor(self, load: Load) -> Agreement | None:
        again = self.journal.of(texts_part(load).name, name_of(OFF))
        return floor_of(self._blocks_of(load), again)

    def _num_profile(
        self, blocks: Mapping[str, Sequence[Block]], load: Load, allowed_s: float
    ) -> int:
        first_s = sum(each.duration_s for own in blocks.values() for each in own if each.block == 0)
        is_main = load == self.settings.loads[0]
        most_s = self.shares.budget_s if is_main else allowed_s
        is_short = 2 * first_s + self.shares.final_s(load) > most_s
        if first_s > _PROFILE_SHARE * allowed_s or is_short:
            return 1
        return self.settings.num_profile.get(load.name, self.settings.rules.num_profile)

    def run_beside_off(
        self, load: Load, standing: Standing, num_blocks: int, allowed_s: float
    ) -> bool:
        """Measures the best arm and off in turns. False where the time was over before."""
        best, journal = standing.best, self.journal
        assert best is not None
        for number in range(num_blocks):
            order = (OFF, best) if number % 2 == 0 else (best, OFF)
            missing = [
                arm for arm in order if (load.name, name_of(arm), number) not in journal.blocks
            ]
            standing = replace(standing, next_arms=tuple(missing), next_block=number)
            while missing:
                if {name_of(OFF), name_of(best)} & journal.failures_at(load.name).keys():
                    return True
                spent_s, most_s = self.shares.elapsed_s(load.name), allowed_s
                if load.part == FINAL and number < MIN_FINAL_BLOCKS:
                    # With fewer there is no verdict: later loads have to wait.
                    spent_s, most_s = self.shares.elapsed_s(), self.shares.budget_s
                needed_s = sum(self.shares.block_s(load, arm) for arm in missing)
                if spent_s + needed_s > most_s:
                    return False
                # Both: what one lacks, the next blocks need.
                if (start := self.prepare(load, order)) is not None:
                    journal.add(start)
                    self._show(load.part, load, standing, None, start, num_blocks)
                    continue
                self._measure(load.part, load, standing, missing.pop(0), num_blocks=num_blocks)
        return True

    def repeat_pairs(
        self, part: Load, standing: Standing, num_blocks: int, allowed_s: float
    ) -> None:
        """Those that were marked, while there is time."""
        best = standing.best
        assert best is not None
        for number in range(num_blocks):
            order = (OFF, best) if number % 2 == 0 else (best, OFF)
            again = pair_to_repeat(self.journal, part, order, number)
            needed_s = sum(self.shares.block_s(part, arm) for arm in again)
            is_over = self.shares.elapsed_s(part.name) + needed_s > allowed_s
            if is_over or self.journal.failures_at(part.name):
                return
            for arm in again:
                now = replace(standing, next_arms=(arm,), next_block=number)
                self._measure(FINAL, part, now, arm, is_again=True, num_blocks=num_blocks)

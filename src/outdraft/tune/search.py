"""A search: profile, race and final of every load, then the schedule that follows from them.

The race chooses an arm. The final judges it against off, on requests that had no part in the choice
and in small blocks that alternate, so that its interval is neither optimistic nor widened.

What is measured next follows from the journal alone, and so does what the budget still allows:
durations are in the journal too. A search that was killed and is started again therefore continues
as if nothing had happened.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from outdraft.decide.texts import Agreement
from outdraft.errors import OptionError
from outdraft.measure.summary import meets
from outdraft.speculation import OFF, Schedule, Speculation
from outdraft.stats.ratios import MIN_BLOCKS
from outdraft.tune.arm import FINAL, SCHEDULE, Load, name_of, proposer_name
from outdraft.tune.final import MIN_FINAL_BLOCKS, num_final_blocks
from outdraft.tune.journal import Block, Failure, Journal, Start, done_records
from outdraft.tune.judging import judge
from outdraft.tune.outcome import LoadOutcome, load_result
from outdraft.tune.race import Race, RaceCache, Standing
from outdraft.tune.ranking import by_rank, rank_proposers
from outdraft.tune.rules import Rules, SearchSettings
from outdraft.tune.schedule import schedule_of, scheduled_arm
from outdraft.tune.shares import TimeShares
from outdraft.tune.texts import floor_of, next_again, other_texts, texts_part
from outdraft.tune.visits import plan_visits, visited_off

PROFILE, RACE, TEXTS = "profile", "race", "texts"  # phases, as FINAL and SCHEDULE are

Measure = Callable[[Load, Speculation, int], Block | Failure]  # one block of an arm under a load
# Starts one engine of the arms that are measured next; None where all are up that can be
Prepare = Callable[[Load, Sequence[Speculation]], Start | None]

_FAR = 2.0  # an SLO that no request of the first blocks meets at this many times its limits
_RACE_SHARE = 0.5  # of a load's time: the race takes no more, the rest is for the final
_PROFILE_SHARE = 0.5  # of a load's time: if the first blocks took more, they are the profile


@dataclass(frozen=True, slots=True)
class Progress:
    """What there is to show after each step."""

    phase: str
    load: Load
    standing: Standing
    arm: Speculation | None  # measured now; None between two
    elapsed_s: float
    budget_s: float


@dataclass(frozen=True, slots=True)
class Search:
    """Measures whatever is next, and writes it to the journal."""

    settings: SearchSettings
    journal: Journal
    measure: Measure
    show: Callable[[Progress], None] = lambda progress: None
    prepare: Prepare = lambda load, arms: None

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
            if load == self.settings.loads[0]:
                self._check_slo()
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
            if not self._run_beside_off(part, Standing(best=arm), MIN_BLOCKS, left_s):
                return

    def _show(self, phase: str, load: Load, standing: Standing, arm: Speculation | None) -> None:
        elapsed_s, budget_s = self.journal.elapsed_s(), self.settings.budget_s
        self.show(Progress(phase, load, standing, arm, elapsed_s, budget_s))

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
                is_whole = self._run_beside_off(part, standing, num_blocks, left_s)
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
            raced, floor = self._blocks_of(load), self._text_floor(load)
            judgement = judge(best, final, raced, rules, floor, of_visits)
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

    def _measure_in_race(self, load: Load, arm: Speculation, number: int) -> None:
        """On another card than the first, off goes before: an arm is compared with it alone."""
        journal, card = self.journal, 0 if arm.is_off else self.settings.cards.of(arm)
        beside, off = load.on(card), name_of(OFF)
        is_there = (beside.name, off, number) in journal.blocks
        if card and not is_there and off not in journal.failures_at(beside.name):
            journal.add(self.measure(beside, OFF, number))
        if card and off in (failed := journal.failures_at(beside.name)):
            reason = f"off failed on its card: {failed[off]}"
            journal.add(Failure(load.name, name_of(arm), reason, 0.0))
        else:
            journal.add(self.measure(load, arm, number))

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
            others = other_texts(settings.arms, blocks, self._text_floor(load))
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
                self._check_slo(_FAR)
            if name_of(OFF) in failed:  # nothing can be compared any more
                if is_main and not blocks[name_of(OFF)]:
                    raise OptionError(
                        f"the baseline cannot be measured at {load.name}: "
                        f"{failed[name_of(OFF)]}; when that is mended, --retry-failed tries again"
                    )
                return standing
            if not standing.next_arms or (settings.in_visits and standing.is_profiled):
                return standing
            needed_s = spent_s + sum(self.shares.block_s(load, arm) for arm in standing.next_arms)
            race_s = min(_RACE_SHARE * allowed_s, profile_s - self.shares.final_s(load))
            if needed_s > (race_s if standing.is_profiled else profile_s):
                return standing
            # One arm at a time: a search that was killed within a block gets here again.
            arm = standing.next_arms[0]
            self._show(phase, load, standing, arm)
            if (start := self.prepare(load, by_rank(standing.next_arms, ranked))) is not None:
                journal.add(start)  # there may not be time for all others now
                continue
            self._measure_in_race(load, arm, standing.next_block)

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
                    self._show(PROFILE, load, standing, arms[0])
                    self._measure_in_race(load, arms[0], standing.next_block)

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
                standing = Standing(next_arms=(job.arm,), next_block=job.block)
                self._show(FINAL, job.load, standing, job.arm)
                journal.add(self.measure(job.load, job.arm, job.block))
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
        again, journal = texts_part(load), self.journal
        compared = [self._blocks_of(each) for each in (load, *parts)]
        while not journal.failures_at(again.name):
            asked = journal.of(again.name, name_of(OFF))
            if (number := next_again(self.settings.arms, compared, asked)) is None:
                return
            self._show(TEXTS, again, Standing(next_block=number), OFF)
            journal.add(self.measure(again, OFF, number))

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

    def _run_beside_off(
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
                self._show(load.part, load, standing, missing[0])
                # Both: what one lacks, the next blocks need.
                if (start := self.prepare(load, order)) is not None:
                    journal.add(start)
                    continue
                journal.add(self.measure(load, missing.pop(0), number))
        return True

    def _check_slo(self, times: float = 1.0) -> None:
        """Refuses an SLO of which no request of the main load met so many times the limits."""
        slo = self.settings.rules.objective.slo
        if not slo:
            return
        every = self.journal.blocks.values()
        done = done_records(each for each in every if each.load == self.settings.loads[0].name)
        loose = {name: times * limit for name, limit in slo.items()}
        if done and not any(meets(each, loose) for each in done):
            limits = ",".join(f"{name}={limit:g}" for name, limit in slo.items())
            more = f", nor {times:g} times that" if times > 1 else ""
            raise OptionError(
                f"--slo {limits}: none of the {len(done)} requests of any arm met it{more}; loosen "
                "it, and the same --out continues with what was measured"
            )

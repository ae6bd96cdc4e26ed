"""What the time of a search is for, from the journal alone. Pure.

A search that is continued decides the same: what was measured later has no say in what was decided
before it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from outdraft.speculation import OFF, Speculation
from outdraft.stats.percentiles import percentile
from outdraft.tune.arm import AGAIN, FINAL, Load, by_proposer, name_of, proposer_name
from outdraft.tune.final import MIN_FINAL_BLOCKS
from outdraft.tune.journal import SHORTEST_START_S, AnswerTime, Block, Journal, Start
from outdraft.tune.rules import SearchSettings
from outdraft.tune.texts import texts_part
from outdraft.tune.visits import MAX_VISIT_BLOCKS, MIN_VISIT_BLOCKS, NUM_OFF_VISITS

MAIN_WEIGHT = 0.9  # the first load, against 1 for each other: one request at a time scatters less


@dataclass(frozen=True, slots=True)
class TimeShares:
    settings: SearchSettings
    journal: Journal

    def share_s(self, place: int) -> float:
        """Seconds for a load: its share of what the loads before it have left."""
        loads = self.settings.loads
        before = sum(self.spent_s(load) for load in loads[:place])
        own = MAIN_WEIGHT if place == 0 else 1.0
        return (self.budget_s - before) * own / (own + len(loads) - place - 1)

    def spent_s(self, load: Load) -> float:
        parts = (*self.races(load), texts_part(load), *self.finals(load))
        return sum(self.elapsed_s(each.name) for each in parts)

    def races(self, load: Load) -> list[Load]:
        """The race of a load, and the off of each card but the first."""
        return [load, *(load.on(card) for card in self.settings.cards.others)]

    def raced_s(self, load: Load) -> float:
        return sum(self.elapsed_s(each.name) for each in self.races(load))

    def elapsed_s(self, load: str | None = None) -> float:
        """Seconds that count against a load's share. Starts that take long count for the run."""
        return self.journal.elapsed_s(load) - self._starts_s(load)

    @property
    def budget_s(self) -> float:
        """Seconds that the loads share."""
        return self.settings.budget_s - self._starts_s()

    def _starts_s(self, load: str | None = None) -> float:
        return 0.0 if self.settings.shares_process else self.journal.starts_s(load)

    def finals(self, load: Load) -> list[Load]:
        """Parts in which an arm is judged."""
        arms = self.settings.arms
        return [load.in_part(part, name_of(arm)) for arm in arms for part in (FINAL, AGAIN)]

    def startable(
        self, load: Load, allowed_s: float, ranked: Sequence[str] = ()
    ) -> tuple[Speculation, ...]:
        """The arms that there is time for. Where one process serves a proposer: those of proposers
        that were measured here, and of as many others as can be started, profiled and judged in
        `allowed_s`; `ranked`: the promising ones first. Elsewhere: the arms whose engines were up,
        and all others while there is time to start another one and to judge every load after that.
        Where no arm's engine was up yet, time to judge this load is enough: else it has no verdict.
        """
        if self.settings.shares_process:
            return self._fitting(load, allowed_s, ranked)
        started = {each.arm for each in self._decided_by(load)}
        arms = tuple(arm for arm in self.settings.arms if name_of(arm) in started)
        if self._to_judge_another_s(load, is_alone=not arms) <= self.settings.budget_s:
            return self.settings.arms
        return arms

    def _fitting(
        self, load: Load, allowed_s: float, ranked: Sequence[str]
    ) -> tuple[Speculation, ...]:
        """At least one proposer; off has its time in any case. By what the race took alone: what
        comes later has no say in it."""
        proposers, before = by_proposer(self.settings.arms), self._before_final(load)
        names = {name_of(arm): name for name, members in proposers.items() for arm in members}
        here = [each.arm for each in before if isinstance(each, Block) and each.load == load.name]
        known = (*here, *self.journal.failures_at(load.name))
        fitting = {names[each] for each in known if each in names}
        started = {names.get(each.arm, each.arm) for each in before}
        left_s = allowed_s - self.raced_s(load) - self.final_s(load)
        start_s = self._start_s(before)
        if name_of(OFF) not in here:
            left_s -= self.block_s(load, OFF) + (0.0 if name_of(OFF) in started else start_s)
        # Engines that are up cost no start.
        for name in sorted(ranked or proposers, key=lambda each: each not in started):
            if name in fitting:
                continue
            left_s -= self.block_s(load, proposers[name][-1])
            left_s -= 0.0 if name in started else start_s
            if left_s < 0 and fitting:
                break
            fitting.add(name)
        return tuple(arm for arm in self.settings.arms if names[name_of(arm)] in fitting)

    def final_s(self, load: Load) -> float:
        """The shortest final of a load."""
        return 2 * MIN_FINAL_BLOCKS * self.block_s(load, OFF) * self._final_size(load)

    def _final_size(self, load: Load) -> float:
        """A block of the final, in blocks of the race."""
        block_s = self.settings.pace.block_s
        raced_s, final_s = (block_s.get(each.name) for each in (load, load.in_part(FINAL)))
        return final_s / raced_s if raced_s and final_s else 1.0

    def _to_judge_another_s(self, load: Load, *, is_alone: bool) -> float:
        """What the run will have taken when the engine of another arm was started, and this load
        (`is_alone`) or every load from it on was judged after that. Visits are to all loads."""
        in_visits, loads = self.settings.in_visits, self.settings.loads
        before = self._decided_by(load)
        start_s = self._start_s(before)
        later = () if is_alone else loads[loads.index(load) + 1 :]
        to_judge = loads if in_visits else (load, *later)
        block_s = sum(self.block_s(each, OFF) for each in to_judge)
        final_s = 2 * MIN_FINAL_BLOCKS * block_s
        if self.settings.cards.others:  # the off of its card may have to be started too
            final_s += start_s + block_s
        if in_visits:  # of one arm
            final_s = 6 * MIN_VISIT_BLOCKS * block_s + (NUM_OFF_VISITS + 2) * start_s
        first_s = sum(each.duration_s for each in self.journal.answer_times.values())
        elapsed_s = first_s + sum(each.duration_s for each in before)
        return elapsed_s + start_s + final_s

    def _decided_by(self, load: Load) -> list[Block | Start]:
        """What has a say in who is started in the race of a load."""
        return self._before_visits() if self.settings.in_visits else self._before_final(load)

    def _start_s(self, entries: Iterable[Block | Start]) -> float:
        """As the median of them, else as it should."""
        every: list[AnswerTime | Block | Start] = [*self.journal.answer_times.values(), *entries]
        starts = [each.start_s for each in every if each.start_s >= SHORTEST_START_S]
        return percentile(starts, 0.5) if starts else self.settings.pace.start_s

    def _before_visits(self) -> list[Block | Start]:
        loads = self.settings.loads
        names = {each.name for load in loads for each in (load, texts_part(load))}
        return [each for each in self._entries() if each.load in names]

    def _entries(self) -> Iterator[Block | Start]:
        yield from self.journal.starts
        yield from self.journal.replaced
        yield from self.journal.blocks.values()

    def visit_blocks(self, leaders: Mapping[Load, Speculation]) -> int:
        """Of each load in one visit: as many as all visits have time for."""
        before = self._before_visits()
        num_starts = 2 * len(set(leaders.values())) + NUM_OFF_VISITS
        left_s = self.settings.budget_s - sum(each.duration_s for each in before)
        left_s -= sum(each.duration_s for each in self.journal.answer_times.values())
        left_s -= num_starts * self._start_s(before)
        needed_s = sum(
            2 * (2 * self.block_s(load, OFF) + self.block_s(load, arm))
            for load, arm in leaders.items()
        )
        fitting = int(left_s / needed_s) if needed_s else 0
        return min(max(fitting, MIN_VISIT_BLOCKS), MAX_VISIT_BLOCKS)

    def _before_final(self, load: Load) -> list[Block | Start]:
        """What was measured before the final of a load: what comes later has no say in its race, so
        that a search that is continued decides the same."""
        loads = self.settings.loads
        earlier = loads[: loads.index(load)]
        parts = [
            each
            for one in earlier
            for each in (*self.races(one), texts_part(one), *self.finals(one))
        ]
        names = {each.name for each in (*parts, *self.races(load), texts_part(load))}
        later = {each.name for one in loads[loads.index(load) + 1 :] for each in self.races(one)}
        return [
            each
            for each in self._entries()
            if each.load in names
            or (each.load in later and isinstance(each, Block) and each.block == 0)
        ]

    def block_s(self, load: Load, arm: Speculation) -> float:
        """What the next block of an arm should take: as its last one, here or under another load,
        else the median of all blocks here. A start counts where the engine is not up already.
        Later parts have no say in it: a search that is continued decides the same."""
        settings, race = self.settings, load.in_part("")
        races = [each.name for each in settings.loads[: settings.loads.index(race) + 1]]
        here = (*races, load.name)
        every = [each for each in self.journal.blocks.values() if each.load in here]
        own = (
            self.journal.of(load.name, name_of(arm))
            or self.journal.of(race.name, name_of(arm))
            or [each for each in every if each.arm == name_of(arm)]
        )
        similar = own[-1:] or [each for each in every if each.load in (load.name, race.name)]
        if not similar:
            return self._guessed_s(load)
        if not settings.shares_process:  # a start that is to come is planned for elsewhere
            return percentile([each.duration_s - each.start_s for each in similar], 0.5)
        siblings = map(name_of, by_proposer((OFF, *settings.arms, arm))[proposer_name(arm)])
        is_up = settings.keeps_engines and not {each.arm for each in every}.isdisjoint(siblings)
        return percentile(
            [each.duration_s - (each.start_s if is_up else 0.0) for each in similar], 0.5
        )

    def _guessed_s(self, load: Load) -> float:
        pace = self.settings.pace
        return pace.block_s.get(load.plan_name, 0.0) * pace.slower(self._start_s(self._entries()))

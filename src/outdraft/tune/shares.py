"""What the time of a search is for, from the journal alone. Pure.

A search that is continued decides the same: what was measured later has no say in what was decided
before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outdraft.speculation import OFF, Speculation
from outdraft.stats.percentiles import percentile
from outdraft.tune.arm import AGAIN, FINAL, Load, by_proposer, name_of, proposer_name
from outdraft.tune.final import MIN_FINAL_BLOCKS
from outdraft.tune.journal import AnswerTime, Block, Journal
from outdraft.tune.rules import SearchSettings
from outdraft.tune.texts import texts_part
from outdraft.tune.visits import MAX_VISIT_BLOCKS, MIN_VISIT_BLOCKS, NUM_OFF_VISITS

_MAIN_WEIGHT = 0.9  # the first load, against 1 for each other: one request at a time scatters less


@dataclass(frozen=True, slots=True)
class TimeShares:
    settings: SearchSettings
    journal: Journal

    def share_s(self, place: int) -> float:
        """Seconds for a load: its share of what the loads before it have left."""
        loads = self.settings.loads
        before = sum(self.spent_s(load) for load in loads[:place])
        own = _MAIN_WEIGHT if place == 0 else 1.0
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

    def startable(self, load: Load) -> tuple[Speculation, ...]:
        """The arms whose engines were up, and all others while there is time to start another one
        and to judge every load after that."""
        if self.settings.shares_process:
            return self.settings.arms
        if self.to_judge_another_s(load) <= self.settings.budget_s:
            return self.settings.arms
        started = {each.arm for each in self._decided_by(load)}
        return tuple(arm for arm in self.settings.arms if name_of(arm) in started)

    def to_judge_another_s(self, load: Load) -> float:
        """What the run will have taken when the engine of another arm was started, and every load
        judged after that."""
        in_visits, loads = self.settings.in_visits, self.settings.loads
        before = self._decided_by(load)
        start_s = self._start_s(before)
        to_judge = loads if in_visits else loads[loads.index(load) :]
        block_s = sum(self.block_s(each, OFF) for each in to_judge)
        final_s = 2 * MIN_FINAL_BLOCKS * block_s
        if self.settings.cards.others:  # the off of its card may have to be started too
            final_s += start_s + block_s
        if in_visits:  # of one arm
            final_s = 6 * MIN_VISIT_BLOCKS * block_s + (NUM_OFF_VISITS + 2) * start_s
        first_s = sum(each.duration_s for each in self.journal.answer_times.values())
        elapsed_s = first_s + sum(each.duration_s for each in before)
        return elapsed_s + start_s + final_s

    def _decided_by(self, load: Load) -> list[Block]:
        """What has a say in who is started in the race of a load."""
        return self._before_visits() if self.settings.in_visits else self._blocks_before_final(load)

    def _start_s(self, blocks: Iterable[Block]) -> float:
        every: list[AnswerTime | Block] = [*self.journal.answer_times.values(), *blocks]
        starts = [each.start_s for each in every if each.start_s > 0]
        return percentile(starts, 0.5) if starts else 0.0

    def _before_visits(self) -> list[Block]:
        loads = self.settings.loads
        names = {each.name for load in loads for each in (load, texts_part(load))}
        return [each for each in self.journal.blocks.values() if each.load in names]

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

    def _blocks_before_final(self, load: Load) -> list[Block]:
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
            for each in self.journal.blocks.values()
            if each.load in names or (each.load in later and each.block == 0)
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
        if not settings.shares_process:  # a start that is to come is planned for elsewhere
            spent = [each.duration_s - each.start_s for each in similar]
            return percentile(spent, 0.5) if spent else 0.0
        siblings = map(name_of, by_proposer((OFF, *settings.arms, arm))[proposer_name(arm)])
        is_up = settings.keeps_engines and not {each.arm for each in every}.isdisjoint(siblings)
        spent = [each.duration_s - (each.start_s if is_up else 0.0) for each in similar]
        return percentile(spent, 0.5) if spent else 0.0

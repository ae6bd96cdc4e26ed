"""The race under one load: which arm is the best, and what to measure next to find out.

First the profile: off, every proposer at its longest draft and, where the engine does not report
step costs, the promising ones at a short one. That predicts all arms (`prediction.py`). A proposer
that is far behind after its first block gets no more. Then arms run in blocks beside off. Before
each block, predictions and all blocks together say what is believed of every arm (`belief.py`): the
leader runs on, and with it those that may still be better by more than matters, also ones that have
not run yet. Without such rivals the race is over. The leader is judged in the final, on other
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from math import log
from typing import Any, TypeVar

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import Verdict
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import by_proposer, name_of, proposer_name
from outdraft.tune.belief import believe, expected_speedups
from outdraft.tune.journal import Block, valid_blocks, valid_records
from outdraft.tune.prediction import predict
from outdraft.tune.rules import Rules

_EARLY_BLOCKS = 3  # an arm with fewer does not lead
_SAME = 0.03  # arms within this of each other are equally good
_LUCK = 1.5  # standard deviations by which an arm may be better than believed
_FAR_BEHIND = 0.7  # of the best prediction: a proposer below it is measured no further

T = TypeVar("T")
ArmBlocks = Mapping[str, Sequence[Block]]  # name of an arm, off included → its blocks in order
# What was computed for earlier standings of the same race. Blocks never change once they are in the
# journal, so it stays valid while blocks are added.
RaceCache = dict[tuple[object, ...], Any]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a race stands: everything that follows from its blocks."""

    forecast: Mapping[str, float] = field(default_factory=dict)  # speedups, from the profile alone
    # The same, corrected by blocks of other arms since; never by the arm's own.
    predicted: Mapping[str, float] = field(default_factory=dict)
    calibrated: tuple[str, ...] = ()  # arms that the predictions were made from
    is_profiled: bool = False  # the profile is complete, whether or not it could predict
    finalists: tuple[Speculation, ...] = ()  # those that have raced
    measured: Mapping[str, Ratio] = field(default_factory=dict)  # the same, over off
    dropped: Mapping[str, str] = field(default_factory=dict)  # name → why it races no longer
    failed: Mapping[str, str] = field(default_factory=dict)  # name → why
    alive: tuple[Speculation, ...] = ()  # those that race now, the leader first
    best: Speculation | None = None  # the leader
    evidence: Evidence | None = None  # on the leader, from the final
    verdict: Verdict | None = None
    next_arms: tuple[Speculation, ...] = ()  # in this order; () when the race is over
    next_block: int = 0
    is_clear: bool = False  # the verdict would not change with more blocks


def _far_behind(arms: Sequence[Speculation], predicted: Mapping[str, float]) -> list[Speculation]:
    """All arms of proposers whose best one is predicted far behind the best of all. Of a proposer
    without a prediction nothing bad is known."""
    proposers = by_proposer(arms)
    best = {
        name: max(predicted.get(name_of(arm), 0.0) for arm in members)
        for name, members in proposers.items()
    }
    least = _FAR_BEHIND * max(best.values(), default=0.0)
    return [arm for name, own in proposers.items() if 0 < best[name] < least for arm in own]


@dataclass(frozen=True)
class Race:
    """Built from the blocks of a load and its rules. The same blocks give the same standing."""

    arms: Sequence[Speculation]
    blocks: ArmBlocks
    failed: Mapping[str, str]  # name of an arm → why
    rules: Rules
    cache: RaceCache = field(default_factory=dict)
    # Name of an arm on another card → what off measured there; all others have `blocks` of off.
    offs: ArmBlocks = field(default_factory=dict)

    @cached_property
    def _running(self) -> list[Speculation]:
        return [arm for arm in self.arms if name_of(arm) not in self.failed]

    def standing(self) -> Standing:
        # An arm that failed after its profile still predicts.
        usable = [arm for arm in self.arms if arm in self._running or self._profile_of(arm)]
        profiled = self._to_profile(usable)
        standing = Standing(failed=self.failed, calibrated=tuple(map(name_of, profiled)))
        for number in range(self.rules.num_profile):
            going_on = profiled if number == 0 else self._promising(usable, profiled)
            if missing := self._missing((OFF, *going_on), number):
                return replace(standing, next_arms=missing, next_block=number)
        forecast = self._forecast(usable, profiled, self.rules.num_profile)
        standing = replace(standing, forecast=forecast, predicted=forecast, is_profiled=True)
        for number in range(self.rules.num_profile, self.rules.max_blocks + 1):
            is_past = any(each.block > number for own in self.blocks.values() for each in own)
            standing = self._led(standing, number)
            if not standing.alive:
                break
            if is_past or number == self.rules.max_blocks:
                continue  # who ran in a past block was decided then
            if len(standing.alive) == 1:
                break
            if missing := self._missing((OFF, *standing.alive), number):
                return replace(standing, next_arms=missing, next_block=number)
        return standing

    def _to_profile(self, usable: Sequence[Speculation]) -> list[Speculation]:
        """The longest draft of every proposer. Without reported step costs also a short one, once
        all long ones were measured, of proposers that are not far behind: each may be a start."""
        proposers = list(by_proposer(usable).values())
        longest = [members[-1] for members in proposers]
        has_costs = any(each.step_seconds for each in self._of(OFF))
        if has_costs or self._missing((OFF, *longest), 0):
            return longest
        behind = _far_behind(self._running, self._forecast(usable, longest, 1))
        shorter = [members[len(members) // 3] for members in proposers if len(members) > 2]
        return [*longest, *(arm for arm in shorter if arm not in behind)]

    def _promising(
        self, usable: Sequence[Speculation], profiled: Sequence[Speculation]
    ) -> list[Speculation]:
        """Those whose proposer is not far behind the best one after the first block."""
        # One that failed, or writes other texts, sets no standard.
        behind = _far_behind(self._running, self._forecast(usable, profiled, 1))
        return [arm for arm in profiled if arm not in behind]

    def _forecast(
        self, usable: Sequence[Speculation], profiled: Sequence[Speculation], num_blocks: int
    ) -> dict[str, float]:
        """From the first blocks of the profile."""
        first = {name_of(arm): self._profile_of(arm, num_blocks) for arm in profiled}
        objective = self.rules.objective.name

        def compute() -> dict[str, float]:
            found: dict[str, float] = {}
            for off, arms in self._by_off(usable):
                own = {name_of(arm): first.get(name_of(arm), ()) for arm in arms}
                beside = [each for each in off if each.block < num_blocks]
                found |= predict(arms, beside, own, objective)
            return found

        return self._once(("forecast", tuple(usable), tuple(profiled), num_blocks), compute)

    def _by_off(
        self, arms: Sequence[Speculation]
    ) -> Iterator[tuple[Sequence[Block], list[Speculation]]]:
        """Arms that are compared with the same off, by their card."""
        left = list(arms)
        while left:
            off = self._off_of(left[0])
            yield off, [arm for arm in left if self._off_of(arm) is off]
            left = [arm for arm in left if self._off_of(arm) is not off]

    def _off_of(self, arm: Speculation) -> Sequence[Block]:
        """Blocks of off on the arm's card."""
        return self.offs.get(name_of(arm), self._of(OFF))

    def _profile_of(self, arm: Speculation, num_blocks: int | None = None) -> list[Block]:
        first = self.rules.num_profile if num_blocks is None else num_blocks
        return [each for each in self._of(arm) if each.block < first]

    def _missing(self, arms: Sequence[Speculation], number: int) -> tuple[Speculation, ...]:
        """Those that have no block `number` yet. Who goes first alternates from block to block."""
        left = [
            arm
            for arm in arms
            if name_of(arm) not in self.failed
            and all(each.block != number for each in self._of(arm))
        ]
        return tuple(left if number % 2 == 0 else left[::-1])

    def _led(self, standing: Standing, number: int) -> Standing:
        """Who leads after the blocks before `number`, and who races in it."""
        raced = [arm for arm in self._running if self._race_blocks(arm, number)]
        ratios = {name_of(arm): self._ratio(OFF, arm, number) for arm in raced}
        measured = {name: each for name, each in ratios.items() if each is not None}
        standing = replace(standing, measured={**standing.measured, **measured})
        # Without predictions every arm is taken to be as good as off until it is measured.
        forecast = standing.forecast or dict.fromkeys(map(name_of, self._running), 1.0)
        candidates = [arm for arm in self._running if name_of(arm) in forecast]
        if not candidates:
            return standing
        first = {name_of(arm): forecast[name_of(arm)] for arm in candidates}
        proposers = {name_of(arm): proposer_name(arm) for arm in candidates}
        gains = {name_of(arm): self._gains(arm, number) for arm in raced}
        belief = believe(first, proposers, gains)

        ranked = sorted(candidates, key=lambda arm: (-belief.of(name_of(arm)), arm.k))
        seasoned = [arm for arm in ranked if len(self._race_blocks(arm, number)) >= _EARLY_BLOCKS]
        leader = (seasoned or ranked)[0]
        rivals = [
            arm
            for arm in ranked
            if arm != leader
            and belief.might_lead_by(name_of(arm), name_of(leader), _LUCK) > log(1 + _SAME)
        ]
        alive = (leader, *rivals)[: self.rules.max_finalists]
        if standing.forecast:
            corrected = expected_speedups(belief, first, proposers, gains)
            standing = replace(standing, predicted={**standing.forecast, **corrected})
        return replace(
            standing,
            best=leader,
            alive=alive,
            finalists=tuple(raced),
            dropped={
                name_of(arm): self._why_dropped(arm, leader, number)
                for arm in raced
                if arm not in alive
            },
        )

    def _why_dropped(self, arm: Speculation, leader: Speculation, number: int) -> str:
        reason = f"unlikely to beat {name_of(leader)} by more than {100 * _SAME:.0f} %"
        if (lead := self._ratio(arm, leader, number)) is None:
            return reason
        interval = "" if lead.low is None else f" [{lead.low:.2f}, {lead.high:.2f}]"
        measured = f"{lead.estimate:.2f}x{interval} of it after {lead.blocks_text}"
        return f"{reason}, which is {measured}"

    def _of(self, arm: Speculation) -> Sequence[Block]:
        return self.blocks.get(name_of(arm), ())

    def _race_blocks(self, arm: Speculation, number: int) -> list[Block]:
        return self._after_profile(self._of(arm), number)

    def _after_profile(self, blocks: Sequence[Block], number: int) -> list[Block]:
        """Valid blocks before `number` and after the profile, which made the predictions."""
        own = valid_blocks(blocks, number)
        return [each for each in own if each.block >= self.rules.num_profile]

    def _ratio(self, baseline: Speculation, candidate: Speculation, number: int) -> Ratio | None:
        """Over the blocks before `number`. None between arms of two cards: part of it would be
        the cards'."""
        off = self._off_of(candidate)
        if not baseline.is_off and self._off_of(baseline) is not off:
            return None

        def compute() -> Ratio | None:
            beside = off if baseline.is_off else self._of(baseline)
            base, own = (valid_records(each, number) for each in (beside, self._of(candidate)))
            return self.rules.objective.ratio(base, own)

        return self._once(("ratio", baseline, candidate, number), compute)

    def _gains(self, arm: Speculation, number: int) -> dict[int, float]:
        """Block → logarithm of the speedup in it alone."""
        beside = self._after_profile(self._off_of(arm), number)
        off = {each.block: each.records for each in beside}
        own = {each.block: each.records for each in self._race_blocks(arm, number)}
        ratio = self.rules.objective.ratio
        ratios = {
            block: self._once(("gain", arm, block), partial(ratio, off[block], own[block]))
            for block in own.keys() & off.keys()
        }
        return {block: log(each.estimate) for block, each in ratios.items() if each is not None}

    def _once(self, key: tuple[object, ...], compute: Callable[[], T]) -> T:
        """From the cache, or computed now."""
        if key not in self.cache:
            self.cache[key] = compute()
        value: T = self.cache[key]
        return value

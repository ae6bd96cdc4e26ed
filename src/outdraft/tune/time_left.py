"""Who can still be judged: a verdict wants a number of blocks, and blocks take time. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from outdraft.speculation import Speculation
from outdraft.stats import MIN_BLOCKS
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block


@dataclass(frozen=True, slots=True)
class TimeLeft:
    seconds: float
    block_s: float  # one arm's block, on average; engines are up
    num_blocks: Mapping[str, int]  # that arms have, by name

    @classmethod
    def before(cls, number: int, blocks: Mapping[str, Sequence[Block]], left_s: float) -> Self:
        """When block `number` began: whatever of it is measured, the answer stays the same."""
        every = [each for own in blocks.values() for each in own]
        spent = [each.duration_s - each.start_s for each in every if each.block < number]
        begun = sum(each.duration_s for each in every if each.block == number)
        num = {
            name: sum(each.block < number and not each.problems for each in own)
            for name, own in blocks.items()
        }
        return cls(left_s + begun, sum(spent) / max(len(spent), 1), num)

    def is_enough_for(self, arm: Speculation) -> bool:
        """To judge it, if it runs beside off alone."""
        return self._can_judge(arm, 1)

    def enough_for(self, racing: Sequence[Speculation]) -> tuple[Speculation, ...]:
        """As many of `racing`, the leader first, as can all be judged if they race side by side.

        All of them where not even the leader can: then what is learned is all there is to gain.
        """
        kept = list(racing)
        while len(kept) > 1:
            late = [arm for arm in kept if not self._can_judge(arm, len(kept))]
            if not late:
                break
            kept.remove(late[-1] if late[-1] != kept[0] else kept[-1])
        return tuple(kept) if kept and self.is_enough_for(kept[0]) else tuple(racing)

    def _can_judge(self, arm: Speculation, num_racing: int) -> bool:
        missing = MIN_BLOCKS - self.num_blocks.get(name_of(arm), 0)
        return missing * (1 + num_racing) * self.block_s <= self.seconds or missing <= 0

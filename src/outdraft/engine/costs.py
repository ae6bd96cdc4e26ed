"""What a step costs on this machine, by how many tokens it computes."""

from __future__ import annotations

import statistics
import time
from bisect import bisect_left
from collections.abc import Mapping

from outdraft.engine.runner import Run, Runner

_SIZES = (1, 4, 6, 7, 8, 16, 32, 64)  # 7 of its own: kernels take a step up about there
_CONTEXT = 128  # tokens before those that are timed: a short chat
_TIMED_STEPS = 3


class StepCosts:
    """Seconds of a decoding step: measured at some sizes, straight lines between them."""

    def __init__(self, measured: Mapping[int, float]) -> None:
        self._sizes = sorted(measured)
        self._seconds = [measured[size] for size in self._sizes]

    @property
    def measured(self) -> dict[int, float]:
        """Tokens of a step → seconds."""
        return dict(zip(self._sizes, self._seconds, strict=True))

    def seconds(self, num_tokens: int) -> float:
        sizes, seconds = self._sizes, self._seconds
        if len(sizes) == 1 or num_tokens <= sizes[0]:
            return seconds[0]
        at = min(bisect_left(sizes, num_tokens), len(sizes) - 1)
        slope = (seconds[at] - seconds[at - 1]) / (sizes[at] - sizes[at - 1])
        return max(seconds[at - 1] + slope * (num_tokens - sizes[at - 1]), seconds[0])


def measure_step_costs(runner: Runner, *, max_tokens: int) -> StepCosts:
    """Times steps of several sizes. Nobody may be using the cache: its first blocks are written.

    Each size is one run of so many tokens; as single tokens of as many sequences they cost the
    same but for attention, which is the small part of a step at this context.
    """
    block_size, room = runner.cache.block_size, runner.cache.num_blocks - 1
    context = min(_CONTEXT, (room * block_size) // 2)
    largest = min(max_tokens, room * block_size - context)
    sizes = [size for size in _SIZES if size <= largest] or [1]
    runs = []
    for size in sizes:
        table = list(range(1, 1 + -(-(context + size) // block_size)))
        runs.append(Run([0] * size, context, table, num_logits=size))
    # In turns: while the machine is slow for a moment, it is so for all of them.
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(1 + _TIMED_STEPS):
        for size, run in zip(sizes, runs, strict=True):
            start = time.perf_counter()
            runner.run([run])
            times[size].append(time.perf_counter() - start)
    # The first one warms up.
    return StepCosts({size: statistics.median(each[1:]) for size, each in times.items()})

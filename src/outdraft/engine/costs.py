"""Times steps on this machine, by how many tokens they compute."""

import statistics
import time

from outdraft.engine.kv_cache import BlockPool
from outdraft.engine.runners.runner import Run, Runner
from outdraft.step_costs import StepCosts

_SIZES = (1, 4, 6, 7, 8, 16, 32, 64)  # 7: some kernels get slower about there
_CONTEXT = 128  # tokens before those that are timed: a short chat
_TIMED_STEPS = 3


def measure_step_costs(runner: Runner, pool: BlockPool, *, max_tokens: int) -> StepCosts:
    """Times steps of several sizes. The first blocks of the runner's pool are overwritten.

    Each size is one run of so many tokens. Single tokens of as many sequences cost the same
    except for attention, which is a small part of a step at this context.
    """
    block_size, room = pool.block_size, pool.num_blocks - 1
    context = min(_CONTEXT, (room * block_size) // 2)
    largest = min(max_tokens, room * block_size - context)
    sizes = [size for size in _SIZES if size <= largest] or [1]
    runs = []
    for size in sizes:
        table = list(range(1, 1 + -(-(context + size) // block_size)))
        runs.append(Run([0] * size, context, table, num_logits=size))
    # In turns, so that a moment in which the machine is slow affects all sizes.
    times: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(1 + _TIMED_STEPS):
        for size, run in zip(sizes, runs, strict=True):
            start = time.perf_counter()
            runner.run([run])
            times[size].append(time.perf_counter() - start)
    # The first time is a warm-up.
    return StepCosts({size: statistics.median(each[1:]) for size, each in times.items()})

"""What the benchmarks share: arms that take turns, ratios with intervals, the machine's name.

Arms take turns in one run, so that whatever else the machine does slows all of them alike.
"""

from __future__ import annotations

import os
import platform
import random
import statistics
from collections.abc import Callable, Mapping, Sequence

import torch


def take_turns(
    arms: Mapping[str, Callable[[int], float]], rounds: int, seed: int = 0
) -> dict[str, list[float]]:
    """Runs every arm once per round, in a new order each round; returns the results by round.

    An arm is called with the number of the round and returns its measurement.
    """
    order = list(arms)
    shuffle = random.Random(seed)
    results: dict[str, list[float]] = {name: [] for name in arms}
    for index in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            results[name].append(arms[name](index))
    return results


def ratio(
    over: Sequence[float], under: Sequence[float], *, draws: int = 4000, seed: int = 0
) -> tuple[float, float, float]:
    """Median of the rounds' ratios, with a 95 % bootstrap interval over rounds."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    pick = random.Random(seed)
    medians = sorted(statistics.median(pick.choices(ratios, k=len(ratios))) for _ in range(draws))
    return statistics.median(ratios), medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def ratio_text(ratio: tuple[float, float, float], digits: int = 2) -> str:
    """1.72 [1.56, 1.98]"""
    median, low, high = ratio
    return f"{median:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def machine() -> dict[str, object]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def machine_line() -> str:
    return " · ".join(f"{key} {value}" for key, value in machine().items())


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"

"""Arms measured in turns, so that what the machine does meanwhile falls on all of them alike."""

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
    """Runs every arm once per round, in a new order each round; what each returned, by round.

    An arm is given the number of its round and returns its measurement.
    """
    order = list(arms)
    shuffle = random.Random(seed)
    found: dict[str, list[float]] = {name: [] for name in arms}
    for index in range(rounds):
        shuffle.shuffle(order)
        for name in order:
            found[name].append(arms[name](index))
    return found


def ratio(
    over: Sequence[float], under: Sequence[float], *, draws: int = 4000, seed: int = 0
) -> tuple[float, float, float]:
    """Median of the rounds' ratios, with a 95 % bootstrap interval over rounds."""
    ratios = [a / b for a, b in zip(over, under, strict=True)]
    pick = random.Random(seed)
    medians = sorted(statistics.median(pick.choices(ratios, k=len(ratios))) for _ in range(draws))
    return statistics.median(ratios), medians[int(draws * 0.025)], medians[int(draws * 0.975)]


def machine() -> dict[str, object]:
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or "unknown"

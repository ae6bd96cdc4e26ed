"""How many requests make a block: enough for seconds on the plateau, by the speed of the warm-up.

What an engine does in some tenths of a second says little: a pause of the machine, or a prompt that
is read, weighs too much in it. Longer blocks cost nothing but interleaving, and five are needed for
an interval.
"""

import math
from collections.abc import Sequence
from statistics import median

from outdraft.records import Record

PLATEAU_S = 3.0  # of a block, in the faster arm
LEAST = 12  # requests of a block whose size is not given
_LEAST_PER_SLOT, _MOST_PER_SLOT, _MOST = 3, 16, 64
_NEEDED_PER_SLOT = 2  # with fewer there is hardly a plateau between leads and fillers


def least_block(concurrency: int) -> int:
    """Requests without which a block says nothing of the load."""
    return _NEEDED_PER_SLOT * concurrency if concurrency > 1 else 1


def warmup_size(concurrency: int) -> int:
    """The first of them fill the slots and wake the engine, the others show its speed."""
    return max(LEAST, 2 * concurrency)


def answer_seconds(warmup: Sequence[Record]) -> float | None:
    """What an answer takes under the load: the median of the later half."""
    sent = sorted(warmup, key=lambda each: each.scheduled_ns)
    times = [each.e2e_ns / 1e9 for each in sent[len(sent) // 2 :] if each.ok and each.e2e_ns]
    return median(times) if times else None


def fitting_block(
    concurrency: int, answer_s: float, *, seconds: float = PLATEAU_S, least: int = LEAST
) -> int:
    """Where so many run at a time and each answer takes `answer_s`."""
    wanted = math.ceil(seconds * concurrency / max(answer_s, 1e-6))
    if concurrency > 1:
        least = max(least, _LEAST_PER_SLOT * concurrency)
    return min(max(wanted, least), max(_MOST, _MOST_PER_SLOT * concurrency))

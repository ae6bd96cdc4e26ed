"""From prompts to the requests of a load: which, how hot, how long, with which seed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice

from outdraft.workload.prompt import Planned, Prompt
from outdraft.workload.temperatures import assign


def spread(prompts: Sequence[Prompt], count: int, seed: int) -> list[Prompt]:
    """`count` prompts with every category as often as any other, as far as that goes.

    Shuffled within its category by the seed; a category that runs out starts again, so a short
    set is repeated rather than refused.
    """
    draw = random.Random(seed)
    by_category: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt)
    queues = []
    for members in by_category.values():
        draw.shuffle(members)
        queues.append(cycle(members))
    chosen = [next(queue) for queue in islice(cycle(queues), count)]
    draw.shuffle(chosen)
    return chosen


def make_plan(
    prompts: Sequence[Prompt],
    *,
    mix: Sequence[tuple[float, float]],
    seed: int,
    max_tokens: int | None = None,
    offsets_ns: Sequence[int] | None = None,
) -> list[Planned]:
    """One request for each prompt. `max_tokens` None: what the prompt is expected to need.

    Temperatures come in the mix's shares over the whole plan, however few prompts a category
    has, and are dealt category by category, so that none of them gets all the hot ones.
    """
    draw = random.Random(seed)
    places: dict[str, list[int]] = {}
    for index, prompt in enumerate(prompts):
        places.setdefault(prompt.category, []).append(index)
    for members in places.values():
        draw.shuffle(members)
    by_category = [index for members in places.values() for index in members]
    temperatures = dict(zip(by_category, _evenly(mix, len(prompts), draw), strict=True))
    return [
        Planned(
            prompt,
            temperatures[index],
            max_tokens or prompt.expected_tokens,
            seed=draw.getrandbits(31),
            offset_ns=None if offsets_ns is None else offsets_ns[index],
        )
        for index, prompt in enumerate(prompts)
    ]


def _evenly(mix: Sequence[tuple[float, float]], count: int, draw: random.Random) -> list[float]:
    """Each temperature in its share, and in about its share of every stretch of the list."""
    counts = Counter(assign(mix, count, 0))
    places = [
        ((at + draw.random()) / total, temperature)
        for temperature, total in counts.items()
        for at in range(total)
    ]
    return [temperature for _, temperature in sorted(places)]

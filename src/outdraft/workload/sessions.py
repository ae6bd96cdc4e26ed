"""Sessions of several turns: one user asks one thing after the other."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from outdraft.workload.plan import choose_balanced, shuffled_by_category
from outdraft.workload.prompt import Planned, Prompt


def choose_turns(prompts: Sequence[Prompt], count: int, turns: int, seed: int) -> list[Prompt]:
    """`count` prompts, session after session, each session of one category. None comes twice
    before all of its category have come. `count` is a multiple of `turns`."""
    if turns == 1:
        return choose_balanced(prompts, count, seed)
    draw = random.Random(seed)
    by_category = shuffled_by_category(prompts, draw)
    taken: Counter[str] = Counter()
    chosen = []
    for first in choose_balanced(prompts, count // turns, seed):
        members, start = by_category[first.category], taken[first.category]
        chosen += [members[(start + at) % len(members)] for at in range(turns)]
        taken[first.category] += turns
    return chosen


def join_turns(plan: Sequence[Planned], turns: int) -> list[Planned]:
    """From a request for each turn, session after session, to one for each session."""
    return [
        replace(plan[at], then=tuple(plan[at + 1 : at + turns]))
        for at in range(0, len(plan), turns)
    ]

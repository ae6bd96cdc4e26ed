"""Which of the project's own prompts are trained on, and which only ever measure.

A prompt's id decides, by its hash, so the answer is the same everywhere and for ever: a third of
every category is held out, never trained on and never part of a made prompt.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from outdraft.workload.prompt import Prompt

_PART = 3  # one in so many of a category is held out


def held_out(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The third of each category whose ids hash lowest, in the order given."""
    ids = _held_out_ids(prompts)
    return [prompt for prompt in prompts if prompt.id in ids]


def for_training(prompts: Sequence[Prompt]) -> list[Prompt]:
    ids = _held_out_ids(prompts)
    return [prompt for prompt in prompts if prompt.id not in ids]


def first_of_each(prompts: Sequence[Prompt], count: int | None) -> list[Prompt]:
    """So many of each category; None: all."""
    taken: Counter[str] = Counter()
    chosen = []
    for prompt in prompts:
        taken[prompt.category] += 1
        if count is None or taken[prompt.category] <= count:
            chosen.append(prompt)
    return chosen


def _held_out_ids(prompts: Sequence[Prompt]) -> set[str]:
    by_category: dict[str, list[str]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt.id)
    return {
        id for ids in by_category.values() for id in sorted(ids, key=_hash)[: len(ids) // _PART]
    }


def _hash(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()

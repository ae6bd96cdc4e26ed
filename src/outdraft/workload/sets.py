"""The project's own prompt sets, and the choice of a source by one word or path."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from outdraft.errors import OptionError, unknown_choice
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import CATEGORIES, Message, Prompt

BUILT_IN = "built-in"
RANDOM = "random"
_RANDOM_WORDS = 128
_RANDOM_PROMPTS = 256


def choose_prompts(
    source: str, *, categories: Sequence[str] = (), force_random: bool = False, seed: int = 0
) -> list[Prompt]:
    """`built-in`, a path, or (only when forced) `random`; then only the categories named."""
    if source == BUILT_IN:
        prompts = built_in()
    elif source == RANDOM:
        if not force_random:
            raise OptionError(
                "random tokens say nothing about speculation: no draft can guess them and no "
                "user sends them, so acceptance and speedup come out wrong in both directions; "
                "give --prompts FILE, or --force-random to measure them all the same"
            )
        prompts = random_prompts(_RANDOM_PROMPTS, seed)
    else:
        prompts = read_prompts(Path(source))
    known = list(dict.fromkeys(prompt.category for prompt in prompts))
    for category in categories:
        if category not in known:
            raise unknown_choice("category", category, known)
    return [p for p in prompts if p.category in categories] if categories else prompts


def built_in() -> list[Prompt]:
    """All of them, category by category (Apache-2.0, written for this project)."""
    folder = resources.files("outdraft.workload") / "prompts"
    prompts = []
    for category in CATEGORIES:
        text = (folder / f"{category}.jsonl").read_text(encoding="utf-8")
        for line in text.splitlines():
            entry = json.loads(line)
            messages = (Message("user", entry["prompt"]),)
            prompts.append(
                Prompt(entry["id"], entry["category"], messages, entry["expected_tokens"])
            )
    return prompts


def random_prompts(count: int, seed: int) -> list[Prompt]:
    """Words without sense, for those who insist."""
    draw = random.Random(seed)

    def word() -> str:
        return "".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randint(2, 9)))

    return [
        Prompt(
            f"random-{index:03}",
            RANDOM,
            (Message("user", " ".join(word() for _ in range(_RANDOM_WORDS))),),
            128,
        )
        for index in range(1, count + 1)
    ]

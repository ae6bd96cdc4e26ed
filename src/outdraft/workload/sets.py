"""The project's own prompts, and the choice of a source by name or path."""

import random
from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase

from outdraft.errors import OptionError, unknown_choice
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import CATEGORIES, Message, Prompt

BUILT_IN = "built-in"
RANDOM = "random"
_FOLDER = Path(__file__).with_name("prompts")
_RANDOM_WORDS = 128
_RANDOM_PROMPTS = 256


def choose_prompts(
    source: str,
    *,
    categories: Sequence[str] = (),
    force_random: bool = False,
    seed: int = 0,
    notes: list[str] | None = None,
) -> list[Prompt]:
    """`source` is `built-in`, a path, or `random` if that is forced. Only the named categories.
    `notes` gets what a file holds and is not understood."""
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
        prompts = read_prompts(Path(source), notes)
    valid = list(dict.fromkeys(prompt.category for prompt in prompts))
    for category in categories:
        if category not in valid:
            raise unknown_choice("category", category, valid)
    return [p for p in prompts if p.category in categories] if categories else prompts


def built_in() -> list[Prompt]:
    """The prompts to measure on, by category (Apache-2.0, written for this project). No draft of
    the project was trained on one of them: its training prompts are in `distill/data`."""
    files = (_FOLDER / f"{category}.jsonl" for category in CATEGORIES)
    return [prompt for file in files for prompt in read_prompts(file)]


def random_prompts(count: int, seed: int) -> list[Prompt]:
    """Meaningless words."""
    draw = random.Random(seed)

    def word() -> str:
        return "".join(draw.choices(ascii_lowercase, k=draw.randint(2, 9)))

    texts = [" ".join(word() for _ in range(_RANDOM_WORDS)) for _ in range(count)]
    return [
        Prompt(f"random-{number:03}", RANDOM, (Message("user", text),), 128)
        for number, text in enumerate(texts, 1)
    ]

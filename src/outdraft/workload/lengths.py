"""Prompts and answers of a given length, made of prompts that people might send.

A text that is too short is continued with other prompts of its category; then it is cut. Random
tokens would be exact too, but no draft can guess them. Pure: a function counts the tokens.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from outdraft.errors import OptionError
from outdraft.workload.prompt import Message, Planned, Prompt

Count = Callable[[str], int]
_PIECES = re.compile(r"\s*\S+")  # a word with what stands before it
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Lengths:
    """From `low` to `high` tokens, each as often as the others."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}" if self.low == self.high else f"{self.low}-{self.high}"

    def draw(self, count: int, seed: int) -> list[int]:
        draw = random.Random(seed)
        return [draw.randint(self.low, self.high) for _ in range(count)]


def parse_lengths(text: str) -> Lengths:
    """`512`, or `100-500`."""
    matched = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    low, high = (int(matched[1]), int(matched[2] or matched[1])) if matched else (0, 0)
    if not 1 <= low <= high <= _MOST:
        raise OptionError(f"{text!r} is no length in tokens; write e.g. 512, or 100-500")
    return Lengths(low, high)


def with_answers_of(plan: Sequence[Planned], lengths: Lengths, seed: int) -> list[Planned]:
    drawn = lengths.draw(len(plan), seed)
    return [replace(each, max_tokens=n) for each, n in zip(plan, drawn, strict=True)]


def with_prompts_of(
    plan: Sequence[Planned],
    lengths: Lengths,
    seed: int,
    *,
    source: Sequence[Prompt],
    count: Count,
    at_most: int,
) -> list[Planned]:
    """The requests with prompts of these lengths. No more than `at_most` are made: after that they
    recur. `source`: what they are continued with."""
    by_category: dict[str, list[Prompt]] = {}
    for prompt in source:
        by_category.setdefault(prompt.category, []).append(prompt)
    made = [
        fit_prompt(each.prompt, length, by_category, count)
        for each, length in zip(plan, lengths.draw(min(len(plan), at_most), seed), strict=False)
    ]
    return [replace(each, prompt=made[at % len(made)]) for at, each in enumerate(plan)]


def fit_prompt(
    prompt: Prompt, length: int, by_category: Mapping[str, Sequence[Prompt]], count: Count
) -> Prompt:
    """One message of so many tokens, which begins with what the prompt says."""
    others = [each for each in by_category[prompt.category] if each.id != prompt.id] or [prompt]
    start = sum(each.id < prompt.id for each in others)  # another one for each prompt
    text, place = prompt.text, 0
    while (found := count(text)) < length:
        enough = 1.1 * length * len(text) / max(found, 1)  # letters, by what a token took so far
        while len(text) <= enough:
            text += f"\n\n{others[(start + place) % len(others)].text}"
            place += 1
    return replace(prompt, messages=(Message("user", cut_text(text, length, count)),))


def cut_text(text: str, length: int, count: Count) -> str:
    """The beginning of the text, as many tokens of it. The last word may be cut, or short words
    follow, where the next one would be too long. `count` is asked a few times: the number of tokens
    grows about evenly with that of words."""
    pieces = _PIECES.findall(text)
    low, at_low = 0, count("")
    high, at_high = len(pieces), count(text)
    if at_high <= length:
        return text
    while high - low > 1:
        share = (length - at_low) / max(at_high - at_low, 1)
        middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
        at_middle = count("".join(pieces[:middle]))
        if at_middle <= length:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
    kept, word = "".join(pieces[:low]), pieces[low]
    missing = length - at_low
    letters = range(len(word) - len(word.lstrip()) + 1, len(word))
    tries = [kept + word[:end] for end in letters] + [kept + missing * " a", kept + missing * " ("]
    return next((each for each in tries if count(each) == length), kept) if missing else kept

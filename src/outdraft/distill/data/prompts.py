"""Prompts for training and for measuring.

The prompts of `workload` are held out: never trained on, and never part of a generated prompt.
`prompts.jsonl` beside this file is trained on, together with any number of generated prompts,
because a draft has to predict the target's answers to every kind of question. Of the prompts that
a user adds, a third of every category is held out. Where training prompts come from:

    own      a given prompt as it is
    mixed    the instruction of one prompt with the document of another of its category
    begun    the first words of a prompt; the target writes the rest of the user's turn
    opened   an opening that the target completes likewise, or a question on a topic
    free     a user's turn that the target writes from nothing
    derived  a text the target wrote earlier, to be summarized, translated, edited
"""

import hashlib
import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from operator import itemgetter
from pathlib import Path
from typing import Any

from outdraft.engine.tokenizer import Tokenizer
from outdraft.workload.files import read_prompts
from outdraft.workload.prompt import Prompt
from outdraft.workload.sets import built_in

SHARES = {"own": 0.06, "mixed": 0.14, "begun": 0.2, "opened": 0.2, "free": 0.1, "derived": 0.3}
TEMPLATES: dict[str, Any] = tomllib.loads(
    resources.files(__package__).joinpath("templates.toml").read_text("utf-8")
)
_PROMPTS = Path(__file__).with_name("prompts.jsonl")
# What people ask for most comes most often.
_WEIGHTS = {"summarization": 3, "code": 3, "chat": 4}
_HELD_OUT_PART = 3  # one prompt in three
_CODE_BLOCK = re.compile(r"```\w*\n.*?```", re.DOTALL)
_DOCUMENT_LETTERS = (200, 1600)
_PLACEHOLDER = "\x00"  # in no text: shows where a chat template puts the user's words


def split_prompts(own: Sequence[Prompt]) -> tuple[list[Prompt], list[Prompt]]:
    """The prompts to train on and those held out, with a user's own among both."""
    unseen = held_out(own)
    return (
        [*read_prompts(_PROMPTS), *(prompt for prompt in own if prompt not in unseen)],
        [*built_in(), *unseen],
    )


def held_out(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The third of each category whose ids hash lowest: the same prompts on every machine."""
    by_category: dict[str, list[str]] = {}
    for prompt in prompts:
        by_category.setdefault(prompt.category, []).append(prompt.id)
    chosen: set[str] = set()
    for ids in by_category.values():
        ids.sort(key=lambda id: hashlib.sha256(id.encode()).digest())
        chosen.update(ids[: len(ids) // _HELD_OUT_PART])
    return [prompt for prompt in prompts if prompt.id in chosen]


def first_of_each(prompts: Sequence[Prompt], count: int | None) -> list[Prompt]:
    """The first `count` prompts of each category; None: all."""
    taken: Counter[str] = Counter()
    chosen = []
    for prompt in prompts:
        taken[prompt.category] += 1
        if count is None or taken[prompt.category] <= count:
            chosen.append(prompt)
    return chosen


def in_rounds(prompts: Sequence[Prompt]) -> list[Prompt]:
    """The first of each category, then the second of each, and so on: whoever takes only some
    from the front has them of all categories."""
    taken: Counter[str] = Counter()
    places = []
    for prompt in prompts:
        places.append(taken[prompt.category])
        taken[prompt.category] += 1
    return [prompt for _, prompt in sorted(zip(places, prompts, strict=True), key=itemgetter(0))]


@dataclass(frozen=True, slots=True)
class TrainingPrompt:
    tokens: list[int]
    category: str
    is_begun: bool = False  # the target still has to finish the user's turn
    is_own: bool = False  # given, not generated


@dataclass(slots=True)
class Documents:
    """Texts and code that the target wrote earlier, as material for derived prompts."""

    texts: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Keeps what has a usual length: the blocks of code, or a text without any."""
        low, high = _DOCUMENT_LETTERS
        codes = _CODE_BLOCK.findall(text)
        self.codes += [code for code in codes if low <= len(code) <= high]
        if "```" not in text and low <= len(text) <= high:
            self.texts.append(text.strip())


class ChatFormat:
    """Encodes user turns in the target's chat template; bare text if it has none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._has_template = tokenizer.chat_template is not None
        whole = _PLACEHOLDER
        if self._has_template:
            whole = tokenizer.render_chat([{"role": "user", "content": _PLACEHOLDER}])
        self._before, _, self._after = whole.partition(_PLACEHOLDER)

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        if not self._has_template:
            return self.encode_turn("\n".join(message.content for message in prompt.messages))
        return self._tokenizer.apply_chat([asdict(message) for message in prompt.messages])

    def encode_turn(self, text: str) -> list[int]:
        return self._encode(self._before + text + self._after)

    def encode_start(self, text: str) -> list[int]:
        """Everything up to and including the first words of the user's turn."""
        tokens = self._encode(self._before + text)
        if not tokens and self._tokenizer.bos_id is not None:  # no template and no text
            return [self._tokenizer.bos_id]
        return tokens or [self._tokenizer.eos_ids[0]]

    def complete_turn(self, start: Sequence[int], rest: Sequence[int]) -> list[int]:
        return [*start, *rest, *self._tokenizer.encode(self._after, add_special=False)]

    def _encode(self, text: str) -> list[int]:
        # A chat template writes every special token itself.
        return self._tokenizer.encode(text, add_special=not self._has_template)


class PromptMaker:
    """Draws training prompts from the sources above."""

    def __init__(self, training: Sequence[Prompt], chat: ChatFormat) -> None:
        self._training = list(training)
        self._weights = [_WEIGHTS.get(prompt.category, 1) for prompt in training]
        self._parts: dict[str, list[tuple[str, str]]] = {}  # category → (instruction, document)
        self.chat = chat
        for prompt in training:
            parts = _instruction_and_document(prompt.messages[-1].content)
            if parts is not None and len(prompt.messages) == 1:
                self._parts.setdefault(prompt.category, []).append(parts)

    def make(self, count: int, documents: Documents, draw: random.Random) -> list[TrainingPrompt]:
        """Prompts in the shares above; the share of an empty source goes to the others."""
        sources = dict(SHARES)
        if not any(len(parts) > 1 for parts in self._parts.values()):
            del sources["mixed"]
        if not documents.texts and not documents.codes:
            del sources["derived"]
        kinds = draw.choices(list(sources), list(sources.values()), k=count)
        return [self._make_one(kind, documents, draw) for kind in kinds]

    def _make_one(self, kind: str, documents: Documents, draw: random.Random) -> TrainingPrompt:
        if kind == "own":
            prompt = draw.choice(self._training)
            return TrainingPrompt(self.chat.encode_prompt(prompt), prompt.category, is_own=True)
        if kind == "begun":
            prompt = draw.choices(self._training, self._weights)[0]
            words = prompt.messages[-1].content.split(" ")
            first = " ".join(words[: draw.randint(2, min(12, max(2, len(words) - 1)))])
            return self._begun(first, prompt.category)
        if kind == "free":
            return self._begun("", "free")
        if kind == "derived":
            return self._derived(documents, draw)
        if kind == "opened":
            return self._opened(draw)
        category = _pick([name for name, parts in self._parts.items() if len(parts) > 1], draw)
        (instruction, _), (_, document) = draw.sample(self._parts[category], 2)
        order = [instruction, document] if draw.random() < 0.8 else [document, instruction]
        return TrainingPrompt(self.chat.encode_turn("\n\n".join(order)), category)

    def _begun(self, text: str, category: str) -> TrainingPrompt:
        return TrainingPrompt(self.chat.encode_start(text), category, is_begun=True)

    def _opened(self, draw: random.Random) -> TrainingPrompt:
        openings, questions = TEMPLATES["openings"], TEMPLATES["questions"]
        if draw.random() < 0.5:
            category = _pick(openings, draw)
            return self._begun(draw.choice(openings[category]), category)
        category = _pick(questions, draw)
        text = draw.choice(questions[category]).format(topic=draw.choice(TEMPLATES["topics"]))
        return TrainingPrompt(self.chat.encode_turn(text), category)

    def _derived(self, documents: Documents, draw: random.Random) -> TrainingPrompt:
        from_code = documents.codes and (not documents.texts or draw.random() < 0.3)
        instructions = TEMPLATES["about_code" if from_code else "about_text"]
        category = _pick(instructions, draw)
        text = draw.choice(documents.codes if from_code else documents.texts)
        # Not `format`: some templates, and code, have braces of their own.
        text = draw.choice(instructions[category]).replace("{text}", text)
        return TrainingPrompt(self.chat.encode_turn(text), category)


def _pick(categories: Iterable[str], draw: random.Random) -> str:
    names = list(categories)
    return draw.choices(names, [_WEIGHTS.get(name, 1) for name in names])[0]


def _instruction_and_document(text: str) -> tuple[str, str] | None:
    """Splits a prompt at its first or last blank line; the shorter part is the instruction."""
    first, _, rest = text.partition("\n\n")
    last_rest, _, last = text.rpartition("\n\n")
    if rest and len(first) < len(rest):
        return first, rest
    if last and len(last) < len(last_rest):
        return last, last_rest
    return None

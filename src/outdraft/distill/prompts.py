"""Prompts to train on: those given, and any number of made ones.

A draft has to guess the target's answers to what people will ask, so prompts must be many and of
every kind. Six sources, all from the training part and the target itself:

    own      the prompts as they are
    mixed    the instruction of one with the document of another of its category
    begun    the first words of one; the target writes the rest of the user's turn
    opened   likewise, from the openings and forms of templates.py
    free     a user's turn that the target writes from nothing
    derived  something the target wrote before, to be summarized, translated, edited
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from outdraft.distill.templates import (
    AROUND_CODE,
    AROUND_TEXT,
    FORMS,
    OPENINGS,
    TOPICS,
)
from outdraft.engine.tokenizer import Tokenizer
from outdraft.workload.prompt import Prompt

# What people ask for most comes most often.
_WEIGHTS = {"summarization": 3, "code": 3, "chat": 4}
SHARES = {"own": 0.06, "mixed": 0.14, "begun": 0.2, "opened": 0.2, "free": 0.1, "derived": 0.3}
_CODE_BLOCK = re.compile(r"```\w*\n.*?```", re.DOTALL)
_DOCUMENT_LETTERS = (200, 1600)
_MARK = "\x00"  # in no text: shows where a template puts the user's words


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt in tokens; `is_begun`: the user's turn is still to be finished by the target."""

    tokens: list[int]
    category: str
    is_begun: bool = False
    is_own: bool = False


@dataclass(slots=True)
class Documents:
    """What the target wrote before, as material for further prompts."""

    texts: list[str] = field(default_factory=list)
    codes: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        for code in _CODE_BLOCK.findall(text):
            if _fits(code):
                self.codes.append(code)
        if "```" not in text and _fits(text):
            self.texts.append(text.strip())


def _fits(text: str) -> bool:
    low, high = _DOCUMENT_LETTERS
    return low <= len(text) <= high


class Turns:
    """The chat template around a user's turn, in tokens; nothing around it without a template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before, self._after = "", ""
        self._after_ids: list[int] = []
        if tokenizer.chat_template is not None:
            whole = tokenizer.render_chat([{"role": "user", "content": _MARK}])
            self._before, _, self._after = whole.partition(_MARK)
            self._after_ids = tokenizer.encode(self._after, add_special=False)

    def asked(self, prompt: Prompt) -> list[int]:
        if self._tokenizer.chat_template is None:
            return self.whole("\n".join(message.content for message in prompt.messages))
        messages = [{"role": m.role, "content": m.content} for m in prompt.messages]
        return self._tokenizer.apply_chat(messages)

    def whole(self, text: str) -> list[int]:
        return self._encode(self._before + text + self._after)

    def begun(self, text: str) -> list[int]:
        """The prompt up to and with the first words of the user's turn."""
        tokens = self._encode(self._before + text)
        if tokens:
            return tokens
        start = self._tokenizer.bos_id  # a model without a template, from nothing
        return [start if start is not None else self._tokenizer.eos_ids[0]]

    def finished(self, begun: Sequence[int], rest: Sequence[int]) -> list[int]:
        return [*begun, *rest, *self._after_ids]

    def _encode(self, text: str) -> list[int]:
        # A chat template writes every special token itself.
        return self._tokenizer.encode(text, add_special=self._tokenizer.chat_template is None)


class PromptMaker:
    def __init__(self, training: Sequence[Prompt], turns: Turns) -> None:
        self._training = list(training)
        self._weights = [_WEIGHTS.get(prompt.category, 1) for prompt in training]
        self.turns = turns
        self._parts: dict[str, list[tuple[str, str]]] = {}  # category → (instruction, document)
        for prompt in training:
            parts = _instruction_and_document(prompt.messages[-1].content)
            if parts is not None and len(prompt.messages) == 1:
                self._parts.setdefault(prompt.category, []).append(parts)

    def make(self, count: int, documents: Documents, draw: random.Random) -> list[Asked]:
        """About `count` prompts in the shares above; a source that is empty gives its to others."""
        sources = dict(SHARES)
        if not any(len(parts) > 1 for parts in self._parts.values()):
            del sources["mixed"]
        if not documents.texts and not documents.codes:
            del sources["derived"]
        kinds = draw.choices(list(sources), list(sources.values()), k=count)
        return [self._one(kind, documents, draw) for kind in kinds]

    def _one(self, kind: str, documents: Documents, draw: random.Random) -> Asked:
        if kind == "own":
            prompt = draw.choice(self._training)
            return Asked(self.turns.asked(prompt), prompt.category, is_own=True)
        if kind == "mixed":
            return self._mixed(draw)
        if kind == "begun":
            prompt = draw.choices(self._training, self._weights)[0]
            words = prompt.messages[-1].content.split(" ")
            first = " ".join(words[: draw.randint(2, min(12, max(2, len(words) - 1)))])
            return Asked(self.turns.begun(first), prompt.category, is_begun=True)
        if kind == "opened":
            return self._opened(draw)
        if kind == "free":
            return Asked(self.turns.begun(""), "free", is_begun=True)
        return self._derived(documents, draw)

    def _mixed(self, draw: random.Random) -> Asked:
        category = _pick([name for name, parts in self._parts.items() if len(parts) > 1], draw)
        (instruction, _), (_, document) = draw.sample(self._parts[category], 2)
        order = [instruction, document] if draw.random() < 0.8 else [document, instruction]
        return Asked(self.turns.whole("\n\n".join(order)), category)

    def _opened(self, draw: random.Random) -> Asked:
        if draw.random() < 0.5:
            category = _pick(OPENINGS, draw)
            opening = draw.choice(OPENINGS[category])
            return Asked(self.turns.begun(opening), category, is_begun=True)
        category = _pick(FORMS, draw)
        text = draw.choice(FORMS[category]).format(topic=draw.choice(TOPICS))
        return Asked(self.turns.whole(text), category)

    def _derived(self, documents: Documents, draw: random.Random) -> Asked:
        from_code = documents.codes and (not documents.texts or draw.random() < 0.3)
        around = AROUND_CODE if from_code else AROUND_TEXT
        category = _pick(around, draw)
        text = draw.choice(documents.codes if from_code else documents.texts)
        # Not `format`: code has braces of its own.
        template = draw.choice(around[category]).replace("{{", "{").replace("}}", "}")
        return Asked(self.turns.whole(template.replace("{text}", text)), category)


def _pick(categories: Iterable[str], draw: random.Random) -> str:
    names = list(categories)
    return draw.choices(names, [_WEIGHTS.get(name, 1) for name in names])[0]


def _instruction_and_document(text: str) -> tuple[str, str] | None:
    """An instruction and what it is about, where a blank line parts them; the shorter leads."""
    first, _, rest = text.partition("\n\n")
    last_rest, _, last = text.rpartition("\n\n")
    if rest and len(first) < len(rest):
        return first, rest
    if last and len(last) < len(last_rest):
        return last, last_rest
    return None

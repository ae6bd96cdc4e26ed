"""A prompt, and a request that is going to be made of it."""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = (
    "chat",
    "code",
    "code_edit",
    "summarization",
    "extraction",
    "qa",
    "creative",
    "translation",
)


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    category: str
    messages: tuple[Message, ...]
    expected_tokens: int  # length of a fitting answer


@dataclass(frozen=True, slots=True)
class Planned:
    """One request of a load. The same plan is sent to every arm."""

    prompt: Prompt
    temperature: float
    max_tokens: int
    seed: int
    # When it is due after the load's start; None: as soon as one of the slots is free.
    offset_ns: int | None = None

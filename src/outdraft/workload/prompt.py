"""A prompt, and a request that is planned for it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

CATEGORIES = ("chat", "code", "code_edit", "summarization", "extraction", "qa", "creative",
              "translation")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Message:
    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    category: str
    messages: tuple[Message, ...]
    expected_tokens: int  # length of a typical answer

    @property
    def text(self) -> str:
        """All that was said, in one."""
        return "\n\n".join(message.content for message in self.messages)

    @property
    def digest(self) -> str:
        """Identifies the words of the prompt, whatever their case and spacing."""
        words = " ".join(word for message in self.messages for word in message.content.split())
        return hashlib.sha256(words.casefold().encode()).hexdigest()[:16]


def digest_of(prompts: Iterable[Prompt]) -> str:
    """Identifies a set of prompts by their words, in whatever order they come."""
    digests = sorted(prompt.digest for prompt in prompts)
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Planned:
    """One request of a load. The same plan is sent to every arm."""

    prompt: Prompt
    temperature: float
    max_tokens: int
    seed: int
    # When it is due after the start of the load; None: as soon as another request is answered.
    offset_ns: int | None = None
    # The later turns of its session: each is sent once the one before is answered, with all that
    # was said until then.
    then: tuple["Planned", ...] = ()

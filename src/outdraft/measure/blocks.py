"""One plan for all arms, sent block by block. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

from outdraft.workload.plan import make_plan, spread
from outdraft.workload.prompt import Message, Planned, Prompt


@dataclass(frozen=True, slots=True)
class Blocks:
    """The requests of every block. One plan for all: a single block is too small for a mix's
    shares to come out."""

    plan: Sequence[Planned]
    size: int
    seed: int

    @property
    def count(self) -> int:
        return len(self.plan) // self.size

    def requests(self, block: int, arm: str = "") -> list[Planned]:
        """A block's requests, each with a mark before its text: no server finds its beginning in
        a cache. The same for all arms, unless they share a server: then `arm` makes them differ.
        Block -1 is for warming up."""
        at = block % self.count * self.size
        key = f"{self.seed}/{block}/{arm}".encode()
        salt = hashlib.blake2b(key, digest_size=3).hexdigest()
        part = self.plan[at : at + self.size]
        return [salted(each, f"{salt}-{index}") for index, each in enumerate(part)]


def make_blocks(
    prompts: Sequence[Prompt],
    *,
    size: int,
    count: int,
    mix: Sequence[tuple[float, float]],
    seed: int,
    max_tokens: int | None = None,
) -> Blocks:
    chosen = spread(prompts, size * count, seed)
    return Blocks(make_plan(chosen, mix=mix, seed=seed, max_tokens=max_tokens), size, seed)


def salted(planned: Planned, salt: str) -> Planned:
    """The same request with a mark before its text."""
    first, *rest = planned.prompt.messages
    marked = Message(first.role, f"[{salt}] {first.content}")
    prompt: Prompt = replace(planned.prompt, messages=(marked, *rest))
    return replace(planned, prompt=prompt)

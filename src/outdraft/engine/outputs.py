"""What the engine returns: updates while a text is written, a generation at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from outdraft.acceptance import Acceptance
from outdraft.engine.sequence import FinishReason


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Under the processed target distribution, from which the token was drawn."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the likeliest alternatives


@dataclass(frozen=True, slots=True)
class Update:
    """What one step added to one choice of a request."""

    request_id: str
    index: int
    tokens: list[int]
    num_accepted: int  # the first so many tokens were drafts
    text: str  # new text that is final; the last tokens may be missing from it
    logprobs: list[TokenLogprob] | None
    finish_reason: FinishReason | None
    generation: Generation | None  # complete, with the last update
    num_drafted: int = 0
    proposer: str | None = None  # whose drafts they were
    why: str = ""  # that proposer and draft length, or none, were chosen


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one step of the engine did."""

    num_sequences: int
    num_tokens: int  # computed, drafts included
    num_prompt_tokens: int  # of these; includes output computed again after a preemption
    draft_lengths: list[int]  # of each sequence in a round, 0 where nothing was proposed
    num_emitted: int
    num_decoded: int  # of these, those that are no text's first
    max_k: int  # the longest draft that any of its sequences could have got
    seconds: float
    is_stopped: bool = False  # at this load only an operator's limits keep drafts away
    temperatures: tuple[float, ...] = ()  # of each sequence in a round
    stopped: tuple[bool, ...] = ()  # whether limits alone keep drafts from it, by load or its own
    drafting_s: Mapping[str, float] = field(default_factory=dict)  # of these, by proposer
    mean_context: float = 0.0  # tokens before those that a sequence in a round computes

    @property
    def is_decoding(self) -> bool:
        """Whether it computed rounds only: no prompt, no text after a preemption."""
        return self.num_prompt_tokens == 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step of the engine. Iterating over it gives its updates."""

    updates: list[Update]
    stats: StepStats | None  # None when there was nothing to compute

    def __iter__(self) -> Iterator[Update]:
        return iter(self.updates)


@dataclass(slots=True)
class Generation:
    """One finished text."""

    request_id: str
    index: int
    num_prompt_tokens: int
    seed: int  # with it the same text is written again
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None  # nothing predicts the first token
    finish_reason: FinishReason | None = None
    acceptance: Acceptance = field(default_factory=Acceptance)
    temperature: float = 0.0
    is_lossy: bool = False  # the rule does not keep the target's distribution
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    # Nanoseconds on one monotonic clock; None until it has happened.
    added_ns: int = 0
    started_ns: int | None = None  # of its first step
    first_token_ns: int | None = None
    finished_ns: int | None = None

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_ns is None else (self.first_token_ns - self.added_ns) / 1e9

    @property
    def decode_s(self) -> float | None:
        """From the first token to the last."""
        if self.first_token_ns is None or self.finished_ns is None:
            return None
        return (self.finished_ns - self.first_token_ns) / 1e9

    @property
    def tokens_per_s(self) -> float | None:
        """Decoding speed, without the first token, which the prompt's computation gives."""
        seconds = self.decode_s
        return (len(self.tokens) - 1) / seconds if seconds and len(self.tokens) > 1 else None

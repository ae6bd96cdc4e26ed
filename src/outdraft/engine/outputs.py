"""What the engine hands out: updates while a text is written, a generation at its end."""

from __future__ import annotations

from dataclasses import dataclass, field

from outdraft.engine.sequence import Acceptance, FinishReason


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Under the processed target distribution: what the token was really drawn from."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # the likeliest alternatives


@dataclass(frozen=True, slots=True)
class Update:
    """What one step added to one choice of a request."""

    request_id: str
    index: int
    tokens: list[int]
    num_accepted: int  # of `tokens`, the leading ones that were drafted; the rest are the target's
    text: str  # that can be shown now; may lag behind the tokens
    logprobs: list[TokenLogprob] | None
    finish_reason: FinishReason | None
    generation: Generation | None  # the whole of it, with the last update


@dataclass(frozen=True, slots=True)
class StepStats:
    """What one step of the engine did, for whoever watches it."""

    num_sequences: int
    num_tokens: int  # computed, drafts included
    num_prompt_tokens: int  # of these; output that is computed again is among them
    draft_lengths: list[int]  # of each sequence in a round, 0 where nothing was proposed
    num_emitted: int
    seconds: float

    @property
    def is_decoding(self) -> bool:
        """Whether it was rounds and nothing else; who comes back from a preemption costs more."""
        return self.num_prompt_tokens == 0


@dataclass(slots=True)
class Generation:
    """One finished text."""

    request_id: str
    index: int
    num_prompt_tokens: int
    seed: int  # writes the same text again
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] | None = None
    prompt_logprobs: list[TokenLogprob | None] | None = None  # nothing predicts the first token
    finish_reason: FinishReason | None = None
    acceptance: Acceptance = field(default_factory=Acceptance)
    temperature: float = 0.0
    is_lossy: bool = False  # made with a rule that does not keep the target's distribution
    num_cached_tokens: int = 0
    num_preemptions: int = 0
    # Nanoseconds on one monotonic clock; None until it happened.
    added_ns: int = 0
    started_ns: int | None = None  # of its first step; before that it waited
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
        """Decoding speed: the first token, which belongs to the prompt's time, is left out."""
        seconds = self.decode_s
        return (len(self.tokens) - 1) / seconds if seconds and len(self.tokens) > 1 else None

"""A sequence: the tokens of one text being written, and its sampling parameters."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from outdraft.acceptance import Acceptance
from outdraft.errors import OptionError

MAX_LOGPROBS = 20
MAX_STOP_STRINGS = 16
MAX_CHOICES = 64
MAX_BIAS = 1000.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn and when the text ends. Impossible values are refused.

    The order in which logits are processed: repetition penalty, presence and frequency
    penalties, logit_bias, min_tokens, temperature, min_p, top_k, top_p.
    """

    temperature: float = 0.0
    top_k: int = 0  # 0: all tokens
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output
    presence_penalty: float = 0.0  # over output
    frequency_penalty: float = 0.0  # over output
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int = 256
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None  # how many alternatives per token; 0: the drawn token alone
    prompt_logprobs: int | None = None  # the same for the prompt's tokens, under the raw logits
    n: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        _between("temperature", self.temperature, 0.0, math.inf)
        _whole("top_k", self.top_k, 0, math.inf)
        _between("top_p", self.top_p, 0.0, 1.0, open_low=True)
        _between("min_p", self.min_p, 0.0, 1.0)
        _between("repetition_penalty", self.repetition_penalty, 0.0, math.inf, open_low=True)
        _between("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _between("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _whole("max_tokens", self.max_tokens, 1, math.inf)
        _whole("min_tokens", self.min_tokens, 0, self.max_tokens)
        _whole("n", self.n, 1, MAX_CHOICES)
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None:
                _whole(name, count, 0, MAX_LOGPROBS)
        if len(self.stop) > MAX_STOP_STRINGS or not all(self.stop):
            raise OptionError(
                f"stop takes up to {MAX_STOP_STRINGS} strings that are not empty, "
                f"got {list(self.stop)!r}"
            )
        if self.seed is not None and not isinstance(self.seed, int):
            raise OptionError(f"seed must be a whole number, got {self.seed!r}")
        for token, bias in self.logit_bias.items():
            _between(f"logit_bias of token {token}", bias, -MAX_BIAS, MAX_BIAS)

    @property
    def has_penalties(self) -> bool:
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def truncates(self) -> bool:
        """Whether some tokens are cut from the distribution before the draw."""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0)


def _between(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    if not math.isfinite(value) or value < low or value > high or (open_low and value == low):
        bound = f"greater than {low:g}" if open_low else f"at least {low:g}"
        upper = "" if math.isinf(high) else f" and at most {high:g}"
        raise OptionError(f"{name} must be {bound}{upper}, got {value:g}")


def _whole(name: str, value: int, low: int, high: float) -> None:
    if not isinstance(value, int):
        raise OptionError(f"{name} must be a whole number, got {value!r}")
    _between(name, value, low, high)


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(Enum):
    STOP = "stop"  # an end-of-text token or a stop string
    LENGTH = "length"  # max_tokens or the context is full
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class TimeObjective:
    """How soon a request wants its text; None: it does not say."""

    tpot_s: float | None = None  # seconds for each token after the first
    e2e_s: float | None = None  # seconds from its arrival to its last token


@dataclass(slots=True, eq=False)
class Sequence:
    """One text being written. `tokens` only ever grows: drafts are never put into it."""

    id: int
    request_id: str
    index: int  # which of the request's n choices
    tokens: list[int]  # prompt, then output
    num_prompt_tokens: int
    params: SamplingParams
    seed: int
    stop_ids: frozenset[int]  # tokens that end the text
    max_draft_tokens: int | None = None  # this request's own k; 0: never speculate
    status: Status = Status.WAITING
    table: list[int] = field(default_factory=list)  # its blocks in the KV cache, in order
    block_hashes: list[bytes] = field(default_factory=list)  # of its full blocks, see BlockPool
    num_computed: int = 0  # tokens whose keys and values are in the cache
    num_cached: int = 0  # of the prompt, found in the cache when the sequence was admitted
    num_preemptions: int = 0
    acceptance: Acceptance = field(default_factory=Acceptance)
    objective: TimeObjective | None = None
    arrived_ns: int = 0  # on the clock of time.perf_counter_ns
    first_token_ns: int | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def output(self) -> list[int]:
        return self.tokens[self.num_prompt_tokens :]

    @property
    def num_output_tokens(self) -> int:
        return len(self.tokens) - self.num_prompt_tokens

    @property
    def num_uncomputed(self) -> int:
        """1: ready to decode. More: still in prefill."""
        return len(self.tokens) - self.num_computed

    def lateness(self, now_ns: int) -> float | None:
        """Seconds at the pace so far / those that are asked for; None where nothing is. A text is
        taken to be as long as it may be."""
        wanted = self.objective
        if wanted is None or self.first_token_ns is None:
            return None
        pace_s = (now_ns - self.first_token_ns) / 1e9 / max(self.num_output_tokens - 1, 1)
        late = []
        if wanted.tpot_s is not None:
            late.append(pace_s / wanted.tpot_s)
        if wanted.e2e_s is not None:
            left = self.params.max_tokens - self.num_output_tokens
            late.append(((now_ns - self.arrived_ns) / 1e9 + left * pace_s) / wanted.e2e_s)
        return max(late, default=None)

    @property
    def is_finished(self) -> bool:
        return self.status is Status.FINISHED

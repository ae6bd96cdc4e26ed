"""The fields of a request: OpenAI's, vLLM's additions, and `speculation`, which is ours.

Every bound is declared here, so that the OpenAPI page, the check and the error agree. Unknown
fields are refused by name: a misspelled setting must not be ignored silently.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError

from outdraft.engine.sequence import MAX_BIAS, MAX_CHOICES, MAX_LOGPROBS, MAX_STOP_STRINGS
from outdraft.server.options import MAX_CANARY_SHARE
from outdraft.speculation import MAX_K
from outdraft.workload.temperatures import BANDS

MAX_PROMPTS = 128  # in one request
MAX_MESSAGES = 1024
MAX_STOP_LENGTH = 256  # characters
MAX_BIASED_TOKENS = 1024
MAX_TOKENS = 1 << 24
MAX_TEMPERATURE = 100.0
MAX_PENALTY = 100.0
MIN_PENALTY = 0.01  # dividing by much less makes logits infinite in float32

_SEED = 1 << 63
_Name = Annotated[str, Field(max_length=1024)]
_TokenId = Annotated[int, Field(ge=0, lt=1 << 32)]
_Tokens = Annotated[list[_TokenId], Field(min_length=1, fail_fast=True)]
_Prompts = Field(min_length=1, max_length=MAX_PROMPTS, fail_fast=True)
_StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_LENGTH)]
_StopStrings = Annotated[list[_StopString], Field(max_length=MAX_STOP_STRINGS)]
_Bias = Annotated[float, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
_TokenKey = Annotated[str, Field(pattern=r"^[0-9]{1,10}$")]
_Limit = Annotated[list[int], Field(min_length=2, max_length=2, fail_fast=True)]
_Band = Annotated[str, Field(pattern=f"^({'|'.join(map(re.escape, BANDS))})$")]
_Empty = Annotated[list[Any], Field(max_length=0)]


def _at_most(limit: int) -> BeforeValidator:
    """Counts entries first: pydantic makes an error of every wrong entry before it counts."""

    def counted(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > limit:
            raise PydanticCustomError("too_long", f"at most {limit} entries are taken")
        return value

    return BeforeValidator(counted)


def _no_number(value: Any) -> Any:
    """In Python 0.0 is False; in JSON it is not."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise PydanticCustomError("bool_type", "Input should be a valid boolean")
    return value


class _Strict(BaseModel):
    # Strict: `"5"` is not 5, and NaN is refused. Lists have `fail_fast` for the same reason as
    # `_at_most`: a million errors take seconds and all memory.
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, values: Any) -> Any:
        """Keeps one unknown field of many: one error is enough."""
        if not isinstance(values, dict) or len(values) <= len(cls.model_fields):
            return values
        unknown = next(name for name in values if name not in cls.model_fields)
        return {k: v for k, v in values.items() if k in cls.model_fields or k == unknown}


class SpeculationOverride(_Strict):
    """This request's own speculation: `{"method": "off"}`, or another draft length."""

    method: str | None = Field(None, max_length=64)
    k: int | None = Field(None, ge=0, le=MAX_K)


class SpeedObjective(_Strict):
    """What a request asks of the server's speed, in milliseconds: `tpot_ms` for each token after
    the first, `e2e_ms` until its end. With method auto, texts that would miss it get draft tokens
    first."""

    tpot_ms: float | None = Field(None, gt=0, le=3_600_000)
    e2e_ms: float | None = Field(None, gt=0, le=86_400_000)

    @model_validator(mode="after")
    def _says_something(self) -> "SpeedObjective":
        if self.tpot_ms is None and self.e2e_ms is None:
            raise ValueError("give tpot_ms or e2e_ms, or both")
        return self


class DraftLimits(_Strict):
    """What an operator allows while the server runs: `max_k`, or `schedule`, [from so many running
    texts on, k] in ascending order. `{"max_k": null}` takes it back. `temperatures` are bands that
    get no drafts. `canary_share` holds as long as they do; without it the server's own does."""

    max_k: int | None = Field(None, ge=0, le=MAX_K)
    schedule: Annotated[list[_Limit], Field(min_length=1, max_length=64, fail_fast=True)] | None = (
        None
    )
    temperatures: Annotated[list[_Band], Field(max_length=len(BANDS), fail_fast=True)] = []
    canary_share: float | None = Field(None, ge=0, le=MAX_CANARY_SHARE)


class StreamOptions(_Strict):
    include_usage: StrictBool | None = None
    continuous_usage_stats: StrictBool | None = None


class _Sampling(_Strict):
    model: _Name | None = None
    max_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS)
    min_tokens: int = Field(0, ge=0, le=MAX_TOKENS)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    temperature: float | None = Field(None, ge=0, le=MAX_TEMPERATURE)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=1 << 31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=MIN_PENALTY, le=MAX_PENALTY)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Annotated[dict[_TokenKey, _Bias] | None, _at_most(MAX_BIASED_TOKENS)] = Field(
        None, max_length=MAX_BIASED_TOKENS
    )
    seed: int | None = Field(None, ge=-_SEED, lt=_SEED)
    stop: _StopString | _StopStrings | None = None
    stop_token_ids: list[_TokenId] | None = Field(None, max_length=MAX_STOP_STRINGS)
    ignore_eos: StrictBool = False
    stream: StrictBool | None = False
    stream_options: StreamOptions | None = None
    speculation: SpeculationOverride | None = None
    slo: SpeedObjective | None = None
    include_metrics: StrictBool = False
    return_token_ids: StrictBool | None = None
    # Accepted because clients send them; without effect.
    user: str | None = Field(None, max_length=4096)
    request_id: str | None = Field(None, max_length=256)
    skip_special_tokens: Literal[True] | None = None
    spaces_between_special_tokens: StrictBool | None = None
    use_beam_search: Literal[False] | None = None

    @property
    def writes(self) -> bool:
        """False where only the prompt is wanted."""
        return True

    @property
    def with_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def with_running_usage(self) -> bool:
        """Whether every chunk of a stream has the usage so far."""
        options = self.stream_options or StreamOptions()
        return self.with_usage and bool(options.continuous_usage_stats)


class CompletionRequest(_Sampling):
    prompt: str | _Tokens | Annotated[list[str], _Prompts] | Annotated[list[_Tokens], _Prompts]
    echo: StrictBool | None = False
    logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    best_of: Literal[1] | None = None
    suffix: Literal[""] | None = None
    add_special_tokens: StrictBool = True

    @property
    def writes(self) -> bool:
        return self.max_tokens != 0


class TextPart(_Strict):
    type: Literal["text"]
    text: str


_TextParts = Annotated[list[TextPart], Field(max_length=MAX_MESSAGES, fail_fast=True)]


class ChatMessage(_Strict):
    role: str = Field(min_length=1, max_length=64)
    content: str | _TextParts | None = None
    name: str | None = Field(None, max_length=256)
    type: Literal["text"] | None = None  # some releases of lm-eval send it
    # What clients send back from an earlier answer.
    refusal: None = None
    annotations: _Empty | None = None
    audio: None = None
    function_call: None = None
    tool_calls: _Empty | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


_Messages = Annotated[
    list[ChatMessage], Field(min_length=1, max_length=MAX_MESSAGES, fail_fast=True)
]


class ResponseFormat(_Strict):
    type: Literal["text"]


class ChatRequest(_Sampling):
    messages: _Messages
    max_completion_tokens: int | None = Field(None, ge=0, le=MAX_TOKENS)
    logprobs: StrictBool | None = False
    top_logprobs: int | None = Field(None, ge=0, le=MAX_LOGPROBS)
    add_generation_prompt: StrictBool = True
    response_format: ResponseFormat | None = None
    tools: _Empty | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: StrictBool | None = None
    store: Annotated[Literal[False], BeforeValidator(_no_number)] | None = None
    metadata: Annotated[dict[str, str] | None, _at_most(16)] = Field(None, max_length=16)
    service_tier: Literal["auto", "default"] | None = None


class TokenizeRequest(_Strict):
    model: _Name | None = None
    prompt: str | None = None
    messages: _Messages | None = None
    add_special_tokens: StrictBool = True
    add_generation_prompt: StrictBool = True
    return_token_strs: StrictBool = False


class DetokenizeRequest(_Strict):
    model: _Name | None = None
    tokens: list[_TokenId] = Field(fail_fast=True)


FIELDS = frozenset(CompletionRequest.model_fields) | frozenset(ChatRequest.model_fields)

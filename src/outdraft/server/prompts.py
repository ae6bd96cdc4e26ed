"""Turns a request's body into prompts for the engine, or a refusal that names the field."""

from dataclasses import fields
from typing import Any

from outdraft.engine.engine import Engine
from outdraft.engine.sequence import SamplingParams, TimeObjective
from outdraft.errors import ModelError, OutdraftError, RequestError
from outdraft.options import make_settings
from outdraft.server.loop import EncodedPrompt
from outdraft.server.protocol import (
    ChatRequest,
    CompletionRequest,
    SpeculationOverride,
    TokenizeRequest,
)
from outdraft.server.refusal import Refusal

_DEFAULT_COMPLETION_TOKENS = 16  # OpenAI's


def completion_prompts(body: CompletionRequest, engine: Engine) -> list[EncodedPrompt]:
    if body.stream and body.echo and body.logprobs is not None:
        raise Refusal(400, "echo with logprobs cannot be streamed", param="echo")
    max_tokens = _DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    if max_tokens == 0 and not body.echo:
        raise Refusal(400, "max_tokens: 0 writes nothing without echo", param="max_tokens")
    is_one = isinstance(body.prompt, str) or isinstance(body.prompt[0], int)
    prompts: list[Any] = [body.prompt] if is_one else [*body.prompt]
    return [
        _prompt(
            body,
            engine,
            engine.tokenizer.encode(each, add_special=body.add_special_tokens)
            if isinstance(each, str)
            else each,
            field="prompt",
            max_tokens=max_tokens,
            logprobs=body.logprobs,
            prompt_logprobs=body.logprobs if body.echo else None,
        )
        for each in prompts
    ]


def chat_prompt(body: ChatRequest, engine: Engine) -> EncodedPrompt:
    if body.top_logprobs and not body.logprobs:
        raise Refusal(400, "top_logprobs needs logprobs to be true", param="top_logprobs")
    max_tokens = body.max_completion_tokens
    if max_tokens is None:
        max_tokens = body.max_tokens
    if max_tokens == 0:
        raise Refusal(400, "max_tokens must be at least 1, got 0", param="max_tokens")
    return _prompt(
        body,
        engine,
        _chat_tokens(engine, body),
        field="messages",
        max_tokens=max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def tokens_of(body: TokenizeRequest, engine: Engine) -> list[int]:
    if (body.prompt is None) == (body.messages is None):
        raise Refusal(400, "prompt: give either prompt or messages", param="prompt")
    if body.messages is not None:
        return _chat_tokens(engine, body)
    return engine.tokenizer.encode(body.prompt or "", add_special=body.add_special_tokens)


def _chat_tokens(engine: Engine, body: ChatRequest | TokenizeRequest) -> list[int]:
    chat = [{"role": message.role, "content": message.text} for message in body.messages or ()]
    try:
        return engine.tokenizer.apply_chat(chat, add_generation_prompt=body.add_generation_prompt)
    except (ModelError, RequestError) as error:
        raise Refusal(400, str(error), param="messages") from error


def _prompt(
    body: CompletionRequest | ChatRequest,
    engine: Engine,
    tokens: list[int],
    *,
    field: str,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None = None,
) -> EncodedPrompt:
    room = max(engine.max_context - len(tokens), 1)
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    k = _draft_length(body.speculation, engine)
    try:
        params = make_settings(
            SamplingParams,
            body,
            temperature=1.0 if body.temperature is None else body.temperature,
            top_k=max(body.top_k or 0, 0),  # in vLLM, -1 is all tokens too
            max_tokens=max(min(room if max_tokens is None else max_tokens, room), 1),
            stop=stop,
            stop_token_ids=tuple(body.stop_token_ids or ()),
            logit_bias={int(token): bias for token, bias in (body.logit_bias or {}).items()},
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
        )
        engine.check(tokens, params, k)
    except RequestError as error:
        raise Refusal(400, f"{field}: {error}", param=field, code="bad_prompt") from error
    except OutdraftError as error:
        names = [each.name for each in fields(SamplingParams) if str(error).startswith(each.name)]
        named = max(names, key=len, default=None)
        raise Refusal(400, str(error), param=named) from error
    objective = None
    if body.slo is not None:
        given = (body.slo.tpot_ms, body.slo.e2e_ms)
        objective = TimeObjective(*(None if each is None else each / 1e3 for each in given))
    return EncodedPrompt(tokens, params, k, objective)


def _draft_length(override: SpeculationOverride | None, engine: Engine) -> int | None:
    if override is None or (override.method is None and override.k is None):
        return None
    own = engine.speculation.method
    if override.method == "off":
        if override.k:
            raise Refusal(400, "speculation: method off has no k", param="speculation")
        return 0
    if override.method not in (None, own):
        words = f"this server runs {own}; a request may say off or another k"
        words = f"speculation: {words}, got method {override.method!r}"
        raise Refusal(400, words, param="speculation")
    if engine.speculation.is_off and override.k:
        raise Refusal(400, "speculation: this server runs without speculation", param="speculation")
    return override.k

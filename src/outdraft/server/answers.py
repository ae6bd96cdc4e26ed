"""OpenAI's answers as plain dictionaries: choices and chunks of the two kinds, and usage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outdraft.engine.outputs import Generation, TokenLogprob, Update
from outdraft.engine.sequence import FinishReason
from outdraft.engine.tokenizer import Tokenizer

_LOWEST = -9999.0  # JSON has no -inf; vLLM writes this


class CompletionAnswer:
    """`/v1/completions`: text, with the prompt before it where `echo` asks for that."""

    id_prefix = "cmpl"
    object = chunk_object = "text_completion"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        prompts: Sequence[list[int]],
        n: int,
        echo: bool,
        writes: bool,
        with_token_ids: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._n = n
        self._echo = echo
        self._writes = writes  # False: max_tokens is 0, only the prompt is wanted
        self._with_token_ids = with_token_ids
        self._offsets: dict[int, int] = {}  # characters so far, by choice

    def opening(self, index: int) -> dict[str, Any] | None:
        """What a choice's stream begins with, before its first token."""
        if not self._echo:
            return None
        return self._choice(index, self._echoed(index), None, None, [])

    def chunk(self, index: int, update: Update) -> dict[str, Any]:
        if not self._writes:
            return self._choice(index, "", None, FinishReason.LENGTH, [])
        logprobs = None if update.logprobs is None else self._logprobs(index, update.logprobs)
        return self._choice(index, update.text, logprobs, update.finish_reason, update.tokens)

    def choice(self, index: int, generation: Generation) -> dict[str, Any]:
        text, tokens = generation.text, generation.tokens
        scored: list[TokenLogprob | None] | None = None
        if generation.logprobs is not None:
            scored = list(generation.logprobs)
        reason = generation.finish_reason
        if not self._writes:  # whatever token the engine drew
            text, tokens, scored = "", [], None if scored is None else []
            reason = FinishReason.LENGTH
        if self._echo:
            text = self._echoed(index) + text
            if scored is not None:
                scored = [*(generation.prompt_logprobs or []), *scored]
        logprobs = None
        if scored is not None:
            first = self._prompts[index // self._n][0]
            logprobs = self._logprobs(index, scored, first)
        return self._choice(index, text, logprobs, reason, tokens)

    def _echoed(self, index: int) -> str:
        return self._tokenizer.decode(self._prompts[index // self._n])

    def _logprobs(
        self, index: int, scored: Iterable[TokenLogprob | None], first_token: int = 0
    ) -> dict[str, Any]:
        """The legacy form: parallel lists. Nothing predicts a prompt's first token."""
        texts: list[str] = []
        values: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        offsets: list[int] = []
        for each in scored:
            text = self._tokenizer.token_text(first_token if each is None else each.token)
            offset = self._offsets.get(index, 0)
            self._offsets[index] = offset + len(text)
            offsets.append(offset)
            texts.append(text)
            values.append(None if each is None else max(each.logprob, _LOWEST))
            tops.append(None if each is None else self._top(text, each))
        return {
            "tokens": texts,
            "token_logprobs": values,
            "top_logprobs": tops,
            "text_offset": offsets,
        }

    def _top(self, text: str, scored: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens, and the one that was drawn, whatever its place."""
        top: dict[str, float] = {}
        for token, logprob in scored.top:
            top.setdefault(self._tokenizer.token_text(token), logprob)
        top.setdefault(text, max(scored.logprob, _LOWEST))
        return top

    def _choice(
        self,
        index: int,
        text: str,
        logprobs: dict[str, Any] | None,
        reason: FinishReason | None,
        tokens: list[int],
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": None if reason is None else reason.value,
        }
        if self._with_token_ids:
            choice["token_ids"] = tokens
        return choice


class ChatAnswer:
    """`/v1/chat/completions`: messages, and deltas of them."""

    id_prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, tokenizer: Tokenizer, *, with_token_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._with_token_ids = with_token_ids

    def opening(self, index: int) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def chunk(self, index: int, update: Update) -> dict[str, Any]:
        delta = {"content": update.text} if update.text else {}
        return self._choice(
            index, "delta", delta, update.logprobs, update.finish_reason, update.tokens
        )

    def choice(self, index: int, generation: Generation) -> dict[str, Any]:
        message = {"role": "assistant", "content": generation.text, "refusal": None}
        return self._choice(
            index,
            "message",
            message,
            generation.logprobs,
            generation.finish_reason,
            generation.tokens,
        )

    def _choice(
        self,
        index: int,
        name: str,
        message: dict[str, Any],
        scored: Sequence[TokenLogprob] | None,
        reason: FinishReason | None,
        tokens: list[int],
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            name: message,
            "logprobs": None if scored is None else {"content": [*map(self._entry, scored)]},
            "finish_reason": None if reason is None else reason.value,
        }
        if self._with_token_ids:
            choice["token_ids"] = tokens
        return choice

    def _entry(self, scored: TokenLogprob) -> dict[str, Any]:
        top = [self._token(token, logprob) for token, logprob in scored.top]
        return self._token(scored.token, scored.logprob) | {"top_logprobs": top}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self._tokenizer.token_text(token),
            "logprob": max(logprob, _LOWEST),
            "bytes": list(self._tokenizer.token_bytes(token)),
        }


Answer = CompletionAnswer | ChatAnswer


def usage(num_prompt_tokens: int, num_cached: int, num_written: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_written,
        "total_tokens": num_prompt_tokens + num_written,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }

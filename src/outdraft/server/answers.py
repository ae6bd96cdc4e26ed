"""OpenAI's answers as plain dictionaries: choices and chunks of both endpoints, and usage."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outdraft.engine.outputs import Generation, TokenLogprob, Update
from outdraft.engine.sequence import FinishReason
from outdraft.engine.tokenizer import Tokenizer
from outdraft.server.protocol import ChatRequest, CompletionRequest

_LOWEST = -9999.0  # JSON has no -inf; vLLM writes this


@dataclass(eq=False)
class CompletionAnswer:
    """`/v1/completions`: text, after the prompt where `echo` is set."""

    tokenizer: Tokenizer
    body: CompletionRequest
    prompts: Sequence[list[int]]
    offsets: Counter[int] = field(default_factory=Counter)  # characters so far, by choice

    id_prefix = "cmpl"
    object = chunk_object = "text_completion"

    def opening(self, index: int) -> dict[str, Any] | None:
        """What a choice's stream begins with, before its first token."""
        if not self.body.echo:
            return None
        ids: list[int] | None = [] if self.body.return_token_ids else None
        return _choice(index, "text", self._echoed(index), None, None, ids)

    def chunk(self, index: int, update: Update) -> dict[str, Any]:
        return self._choice(index, update)

    def choice(self, index: int, generation: Generation) -> dict[str, Any]:
        if not self.body.echo:
            return self._choice(index, generation)
        scores = generation.prompt_logprobs or []
        return self._choice(index, generation, self._echoed(index), scores)

    def _prompt(self, index: int) -> list[int]:
        return self.prompts[index // (self.body.n or 1)]

    def _echoed(self, index: int) -> str:
        return self.tokenizer.decode(self._prompt(index))

    def _choice(
        self,
        index: int,
        new: Update | Generation,
        echoed: str = "",
        echoed_scores: Sequence[TokenLogprob | None] = (),
    ) -> dict[str, Any]:
        text, tokens, scores, reason = new.text, new.tokens, new.logprobs, new.finish_reason
        if not self.body.writes:  # max_tokens is 0: the engine's one token is left out
            text, tokens, scores = "", [], None if scores is None else []
            reason = FinishReason.LENGTH
        logprobs = None if scores is None else self._logprobs(index, [*echoed_scores, *scores])
        ids = tokens if self.body.return_token_ids else None
        return _choice(index, "text", echoed + text, logprobs, reason, ids)

    def _logprobs(self, index: int, scores: Sequence[TokenLogprob | None]) -> dict[str, Any]:
        """The legacy form: parallel lists. Only the first token of a prompt has no score."""
        names = ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        lists: dict[str, list[Any]] = {name: [] for name in names}
        for each in scores:
            text = self.tokenizer.token_text(each.token if each else self._prompt(index)[0])
            value = max(each.logprob, _LOWEST) if each else None
            top = self._top(text, each) if each else None
            entry = (text, value, top, self.offsets[index])
            self.offsets[index] += len(text)
            for name, item in zip(names, entry, strict=True):
                lists[name].append(item)
        return lists

    def _top(self, text: str, score: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens, and the drawn one even if it is not among them."""
        top: dict[str, float] = {}
        for token, logprob in score.top:
            top.setdefault(self.tokenizer.token_text(token), logprob)
        top.setdefault(text, max(score.logprob, _LOWEST))
        return top


@dataclass(eq=False)
class ChatAnswer:
    """`/v1/chat/completions`: messages, and deltas of them."""

    tokenizer: Tokenizer
    body: ChatRequest

    id_prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self, index: int) -> dict[str, Any] | None:
        return _choice(index, "delta", {"role": "assistant", "content": ""}, None, None, None)

    def chunk(self, index: int, update: Update) -> dict[str, Any]:
        return self._choice(index, "delta", {"content": update.text} if update.text else {}, update)

    def choice(self, index: int, generation: Generation) -> dict[str, Any]:
        message = {"role": "assistant", "content": generation.text, "refusal": None}
        return self._choice(index, "message", message, generation)

    def _choice(
        self, index: int, name: str, message: dict[str, Any], source: Update | Generation
    ) -> dict[str, Any]:
        logprobs = None
        if source.logprobs is not None:
            logprobs = {"content": [self._entry(score) for score in source.logprobs]}
        ids = source.tokens if self.body.return_token_ids else None
        return _choice(index, name, message, logprobs, source.finish_reason, ids)

    def _entry(self, score: TokenLogprob) -> dict[str, Any]:
        top = [self._token(token, logprob) for token, logprob in score.top]
        return self._token(score.token, score.logprob) | {"top_logprobs": top}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self.tokenizer.token_text(token),
            "logprob": max(logprob, _LOWEST),
            "bytes": list(self.tokenizer.token_bytes(token)),
        }


Answer = CompletionAnswer | ChatAnswer


def _choice(
    index: int,
    name: str,
    content: str | dict[str, Any],
    logprobs: dict[str, Any] | None,
    reason: FinishReason | None,
    token_ids: list[int] | None,
) -> dict[str, Any]:
    choice: dict[str, Any] = {
        "index": index,
        name: content,
        "logprobs": logprobs,
        "finish_reason": None if reason is None else reason.value,
    }
    return choice if token_ids is None else choice | {"token_ids": token_ids}


def usage(num_prompt_tokens: int, num_cached: int, num_written: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_written,
        "total_tokens": num_prompt_tokens + num_written,
        "prompt_tokens_details": {"cached_tokens": num_cached},
    }

"""The bytes of a fake server's answers: chunks, usage, acceptance as each engine writes it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from outdraft.testing.fake_script import Asked, Played, speculative_decoding, words_of

Dialect = Literal["vllm", "sglang", "llamacpp"]
Piece = tuple[float, bytes]  # seconds after the request came, and what is sent then
DONE = b"data: [DONE]\n\n"


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def pieces_of(
    asked: Asked,
    played: Played,
    *,
    k: int,
    dialect: Dialect,
    with_usage: bool,
    with_metrics: bool,
    num_prompt_tokens: int,
) -> list[Piece]:
    words = words_of(asked, played.num_tokens)
    pieces: list[Piece] = []
    place = 0
    for at, size in zip(played.at_s, played.tokens, strict=True):
        text = "".join(words[place : place + size])
        place += size
        pieces.append((at, event(_chunk({"content": text}, None))))
    last = played.at_s[-1]
    tail: dict[str, Any] = {"object": "chat.completion.chunk", "choices": []}
    if with_usage:
        tail["usage"] = _usage(played, num_prompt_tokens)
    if with_metrics:
        tail |= _acceptance(played, k, dialect)
    out = event(_chunk({}, played.finish_reason))
    if len(tail) > 2:
        out += event(tail)
    pieces.append((last, out + DONE))
    return pieces


def whole_answer(
    asked: Asked, played: Played, *, k: int, dialect: Dialect, num_prompt_tokens: int
) -> dict[str, Any]:
    """Of a request that wants no stream."""
    message = {"role": "assistant", "content": "".join(words_of(asked, played.num_tokens))}
    choice = {"index": 0, "message": message, "finish_reason": played.finish_reason}
    usage = _usage(played, num_prompt_tokens)
    answer = {"object": "chat.completion", "model": "fake", "choices": [choice], "usage": usage}
    return answer | _acceptance(played, k, dialect)


def halved(pieces: Sequence[Piece]) -> list[Piece]:
    """The first half of an answer, at least one chunk of it."""
    return list(pieces[: max(1, (len(pieces) - 1) // 2)])


def _usage(played: Played, num_prompt_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": played.num_tokens,
        "total_tokens": num_prompt_tokens + played.num_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _chunk(delta: dict[str, str], finish_reason: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"object": "chat.completion.chunk", "model": "fake", "choices": [choice]}


def _acceptance(played: Played, k: int, dialect: Dialect) -> dict[str, Any]:
    found = speculative_decoding(played.rounds, k)
    if dialect == "vllm":
        times = {
            "queue_time_ms": 0.0,
            "time_to_first_token_ms": played.at_s[0] * 1e3,
            "generation_time_ms": (played.at_s[-1] - played.at_s[0]) * 1e3,
        }
        return {"metrics": {**times, "speculative_decoding": found}}
    if dialect == "sglang":
        if not k:
            return {}
        details = {
            "spec_verify_ct": found["num_spec_steps"],
            "spec_num_correct_drafts": found["num_accepted_draft_tokens"],
            "spec_num_proposed_drafts": found["num_spec_steps"] * k,  # as SGLang counts them
            "spec_correct_drafts_histogram": found["acceptance_histogram"],
        }
        return {"sglext": {"spec_tokens_details": details}}
    timings: dict[str, Any] = {"predicted_n": played.num_tokens}
    if found["num_draft_tokens"]:
        timings["draft_n"] = found["num_draft_tokens"]
        timings["draft_n_accepted"] = found["num_accepted_draft_tokens"]
    return {"timings": timings}

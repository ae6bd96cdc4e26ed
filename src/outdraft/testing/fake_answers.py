"""What a fake server says, in each engine's form: answers with their acceptance, and metrics."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from outdraft.acceptance import Acceptance
from outdraft.testing.fake_script import ScriptedAnswer, ScriptedRequest

Dialect = Literal["vllm", "sglang", "llamacpp"]
_OBJECTS = {True: "chat.completion.chunk", False: "text_completion"}
TimedBytes = tuple[float, bytes]  # seconds after the request came, and what is sent then


def event(value: Any) -> bytes:
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def stream_of(
    request: ScriptedRequest,
    answer: ScriptedAnswer,
    *,
    with_usage: bool,
    acceptance: Any,
    is_chat: bool = True,
) -> list[TimedBytes]:
    """Server-sent events; `acceptance` are the fields of the last one."""
    words = iter(answer.words)
    events = [
        (at, event(_chunk("".join(islice(words, size)), None, is_chat)))
        for at, size in zip(answer.at_s, answer.tokens, strict=True)
    ]
    end = event(_chunk("", answer.finish_reason, is_chat))
    usage = {"usage": usage_of(request, answer)} if with_usage else {}
    if tail := usage | acceptance:
        end += event({"object": _OBJECTS[is_chat], "choices": [], **tail})
    return [*events, (answer.at_s[-1], end + b"data: [DONE]\n\n")]


def whole_answer(request: ScriptedRequest, answer: ScriptedAnswer) -> dict[str, Any]:
    """The body for a request without a stream."""
    message = {"role": "assistant", "content": "".join(answer.words)}
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    usage = usage_of(request, answer)
    return {"object": "chat.completion", "model": "fake", "choices": [choice], "usage": usage}


def num_prompt_tokens(request: ScriptedRequest) -> int:
    return len(request.prompt.split()) or 1


def usage_of(request: ScriptedRequest, answer: ScriptedAnswer) -> dict[str, Any]:
    prompt = num_prompt_tokens(request)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer.num_tokens,
        "total_tokens": prompt + answer.num_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _chunk(text: str, finish_reason: str | None, is_chat: bool) -> dict[str, Any]:
    piece: dict[str, Any] = (
        {"delta": {"content": text} if text else {}} if is_chat else {"text": text}
    )
    choice = {"index": 0, **piece, "finish_reason": finish_reason}
    return {"object": _OBJECTS[is_chat], "model": "fake", "choices": [choice]}


def reported_acceptance(answer: ScriptedAnswer, k: int, dialect: Dialect) -> dict[str, Any]:
    """The fields in which an engine reports a request's acceptance."""
    counts = answer.acceptance
    if dialect == "vllm":
        times = {
            "queue_time_ms": 0.0,
            "time_to_first_token_ms": answer.at_s[0] * 1e3,
            "generation_time_ms": (answer.at_s[-1] - answer.at_s[0]) * 1e3,
        }
        return {"metrics": {**times, "speculative_decoding": vllm_acceptance(counts, k)}}
    if dialect == "sglang":
        details = {
            "spec_verify_ct": counts.num_drafts,
            "spec_num_correct_drafts": counts.num_accepted_tokens,
            "spec_num_proposed_drafts": counts.num_drafts * k,  # as SGLang counts them
            "spec_correct_drafts_histogram": _histogram(counts, k),
        }
        return {"sglext": {"spec_tokens_details": details}} if k else {}
    timings = {"predicted_n": answer.num_tokens}
    if counts.num_draft_tokens:
        timings["draft_n"] = counts.num_draft_tokens
        timings["draft_n_accepted"] = counts.num_accepted_tokens
    return {"timings": timings}


def vllm_acceptance(counts: Acceptance, k: int) -> dict[str, Any]:
    """Under the names that vLLM and our own server use."""
    return {
        "mean_acceptance_length": counts.length,
        "draft_acceptance_rate": counts.rate,
        "acceptance_histogram": _histogram(counts, k),
        "num_spec_steps": counts.num_drafts,
        "num_steps_without_draft": counts.num_undrafted,
        "num_accepted_draft_tokens": counts.num_accepted_tokens,
        "num_draft_tokens": counts.num_draft_tokens,
        "num_spec_tokens": k,
    }


def _histogram(counts: Acceptance, k: int) -> list[int]:
    """Rounds by the number of accepted tokens, from 0 to k."""
    at_least = [counts.num_drafts, *counts.accepted_per_position]
    at_least += [0] * (k + 2 - len(at_least))
    return [at_least[n] - at_least[n + 1] for n in range(k + 1)]


Values = dict[str, float | Mapping[str, float]]  # by name; by label where there are several
LOG_INTERVAL = 40  # rounds; the default of SGLang's --decode-log-interval


@dataclass(slots=True)
class FakeMetrics:
    """Counts for a Prometheus page, under the names of vLLM or SGLang."""

    k: int
    kv_slots: int  # requests that fill the KV cache
    num_requests: int = 0
    num_running: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    log_interval: int = LOG_INTERVAL
    acceptance: Acceptance = field(default_factory=Acceptance)
    finished: Counter[str] = field(default_factory=Counter)

    def observe(self, answer: ScriptedAnswer, num_prompt_tokens: int) -> None:
        self.num_prompt_tokens += num_prompt_tokens
        self.num_tokens += answer.num_tokens
        self.finished[answer.finish_reason] += 1
        self.acceptance.add(answer.acceptance)

    def render(self, dialect: Dialect = "vllm") -> bytes:
        lines = []
        for name, value in (self._sglang() if dialect == "sglang" else self._vllm()).items():
            described = name.removesuffix("_total")
            kind = "gauge" if described == name else "counter"
            lines += [f"# HELP {described} Fake.", f"# TYPE {described} {kind}"]
            for label, each in (value if isinstance(value, Mapping) else {"": value}).items():
                labels = f'model_name="fake",engine="0"{"," if label else ""}{label}'
                lines.append(f"{name}{{{labels}}} {float(each)}")
        return "".join(f"{line}\n" for line in lines).encode()

    @property
    def _kv_usage(self) -> float:
        return min(1.0, self.num_running / self.kv_slots)

    def _vllm(self) -> Values:
        values: Values = {
            "vllm:num_requests_running": self.num_running,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": self._kv_usage,
            "vllm:num_preemptions_total": 0,
            "vllm:prompt_tokens_total": self.num_prompt_tokens,
            "vllm:generation_tokens_total": self.num_tokens,
            "vllm:request_success_total": {
                f'finished_reason="{reason}"': self.finished[reason]
                for reason in ("stop", "length", "abort")
            },
        }
        if self.k:  # as in vLLM, absent when speculation is off
            counts, name = self.acceptance, "vllm:spec_decode_num"
            accepted = dict(enumerate(counts.accepted_per_position))
            values |= {
                f"{name}_drafts_total": counts.num_drafts,
                f"{name}_draft_tokens_total": counts.num_draft_tokens,
                f"{name}_accepted_tokens_total": counts.num_accepted_tokens,
                f"{name}_accepted_tokens_per_pos_total": {
                    f'position="{at}"': accepted.get(at, 0) for at in range(self.k)
                },
            }
        return values

    def _sglang(self) -> Values:
        """As srt/observability/metrics_collector.py of SGLang 0.5.23 names and sets them."""
        num_rounds, num_accepted = self.acceptance.num_rounds, self.acceptance.num_accepted_tokens
        is_set = self.k and num_rounds >= self.log_interval  # it sets gauges only so often
        values: Values = {
            "sglang:num_running_reqs": self.num_running,
            "sglang:num_queue_reqs": 0,
            "sglang:token_usage": self._kv_usage,
            # These are there when speculation is off, too.
            "sglang:spec_accept_length": 1 + num_accepted / num_rounds if is_set else 0,
            "sglang:spec_accept_rate": num_accepted / (num_rounds * self.k) if is_set else 0,
            "sglang:spec_num_steps": self.k if is_set else 0,
            "sglang:spec_num_draft_tokens": self.k + 1 if is_set else 0,
            "sglang:prompt_tokens_total": self.num_prompt_tokens,
            "sglang:generation_tokens_total": self.num_tokens,
            "sglang:num_requests_total": self.finished.total(),
        }
        if self.k and num_rounds:  # and this one is not
            values["sglang:spec_verify_calls_total"] = num_rounds
        return values

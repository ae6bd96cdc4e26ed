"""A fake server's Prometheus page, under the names of vLLM or SGLang."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from outdraft.testing.fake_script import Played

_LABELS = 'model_name="fake",engine="0"'
LOG_INTERVAL = 40  # SGLang's --decode-log-interval, unless somebody says otherwise


@dataclass(slots=True)
class FakeMetrics:
    k: int
    kv_slots: int  # requests that fill the KV cache
    num_requests: int = 0
    num_running: int = 0
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    log_interval: int = LOG_INTERVAL
    num_rounds: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0
    accepted_per_position: Counter[int] = field(default_factory=Counter)
    finished: Counter[str] = field(default_factory=Counter)

    def observe(self, played: Played, num_prompt_tokens: int) -> None:
        self.num_prompt_tokens += num_prompt_tokens
        self.num_tokens += played.num_tokens
        self.finished[played.finish_reason] += 1
        self.num_rounds += len(played.rounds)
        for drafted, accepted in played.rounds:
            if drafted:
                self.num_drafts += 1
                self.num_draft_tokens += drafted
                self.num_accepted += accepted
                self.accepted_per_position.update(range(accepted))

    def render(self) -> bytes:
        used = min(1.0, self.num_running / self.kv_slots)
        lines = [
            *_lines("gauge", "vllm:num_requests_running", [("", self.num_running)]),
            *_lines("gauge", "vllm:num_requests_waiting", [("", 0)]),
            *_lines("gauge", "vllm:kv_cache_usage_perc", [("", used)]),
            *_lines("counter", "vllm:num_preemptions_total", [("", 0)]),
            *_lines("counter", "vllm:prompt_tokens_total", [("", self.num_prompt_tokens)]),
            *_lines("counter", "vllm:generation_tokens_total", [("", self.num_tokens)]),
            *_lines(
                "counter",
                "vllm:request_success_total",
                [
                    (f'finished_reason="{reason}"', self.finished[reason])
                    for reason in ("stop", "length", "abort")
                ],
            ),
        ]
        if self.k:  # as in vLLM, absent when speculation is off
            name = "vllm:spec_decode_num"
            places = [
                (f'position="{place}"', self.accepted_per_position[place])
                for place in range(self.k)
            ]
            lines += [
                *_lines("counter", f"{name}_drafts_total", [("", self.num_drafts)]),
                *_lines("counter", f"{name}_draft_tokens_total", [("", self.num_draft_tokens)]),
                *_lines("counter", f"{name}_accepted_tokens_total", [("", self.num_accepted)]),
                *_lines("counter", f"{name}_accepted_tokens_per_pos_total", places),
            ]
        return "".join(f"{line}\n" for line in lines).encode()

    def render_sglang(self) -> bytes:
        """As srt/observability/metrics_collector.py of SGLang 0.5.23 names and sets them."""
        known = self.k and self.num_rounds >= self.log_interval  # it sets gauges only so often
        length = 1 + self.num_accepted / self.num_rounds if known else 0
        rate = self.num_accepted / (self.num_rounds * self.k) if known else 0
        gauges = {
            "num_running_reqs": self.num_running,
            "num_queue_reqs": 0,
            "token_usage": min(1.0, self.num_running / self.kv_slots),
            "spec_accept_length": length,  # these are there when speculation is off, too
            "spec_accept_rate": rate,
            "spec_num_steps": self.k if known else 0,
            "spec_num_draft_tokens": self.k + 1 if known else 0,
        }
        counters = {
            "prompt_tokens": self.num_prompt_tokens,
            "generation_tokens": self.num_tokens,
            "num_requests": sum(self.finished.values()),
        }
        if self.k and self.num_rounds:  # and this one is not
            counters["spec_verify_calls"] = self.num_rounds
        lines = [
            *(line for name, value in gauges.items()
              for line in _lines("gauge", f"sglang:{name}", [("", value)])),
            *(line for name, value in counters.items()
              for line in _lines("counter", f"sglang:{name}_total", [("", value)])),
        ]  # fmt: skip
        return "".join(f"{line}\n" for line in lines).encode()


def _lines(kind: str, name: str, samples: Sequence[tuple[str, float]]) -> list[str]:
    described = name.removesuffix("_total") if kind == "counter" else name
    head = [f"# HELP {described} Fake.", f"# TYPE {described} {kind}"]
    return head + [
        f"{name}{{{_LABELS}{',' if label else ''}{label}}} {float(value)}"
        for label, value in samples
    ]

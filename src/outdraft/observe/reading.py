"""What a server says of itself at one moment, and what it did between two moments: the same words
for every engine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.observe.counters import engine_of, read_acceptance, read_gauges
from outdraft.observe.histogram import Histogram
from outdraft.observe.page import Page

# Counters that every engine has under a name of its own. Those that it lacks stay 0.
# decode_*: seconds of streams between their first and last token, and the tokens in them.
_COUNTERS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "num_tokens": "vllm:generation_tokens_total",
        "num_prompt_tokens": "vllm:prompt_tokens_total",
        "num_requests": "vllm:e2e_request_latency_seconds_count",
        "num_preemptions": "vllm:num_preemptions_total",
        "prefix_queries": "vllm:prefix_cache_queries_total",
        "prefix_hits": "vllm:prefix_cache_hits_total",
        "decode_seconds": "vllm:request_decode_time_seconds_sum",
        "decode_tokens": "vllm:request_generation_tokens_sum",  # less one for each request
    },
    "sglang": {
        "num_tokens": "sglang:generation_tokens_total",
        "num_prompt_tokens": "sglang:prompt_tokens_total",
        "num_requests": "sglang:num_requests_total",
        "num_preemptions": "sglang:num_retracted_reqs_total",
        "decode_seconds": "sglang:inter_token_latency_seconds_sum",
        "decode_tokens": "sglang:inter_token_latency_seconds_count",
    },
    "llamacpp": {
        "num_tokens": "llamacpp:tokens_predicted_total",
        "num_prompt_tokens": "llamacpp:prompt_tokens_total",
        "decode_seconds": "llamacpp:tokens_predicted_seconds_total",
        "decode_tokens": "llamacpp:tokens_predicted_total",
    },
}
_HISTOGRAMS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "vllm": {
        "ttft": ("vllm:time_to_first_token_seconds",),
        "tpot": ("vllm:request_time_per_output_token_seconds",),
        "e2e": ("vllm:e2e_request_latency_seconds",),
    },
    "sglang": {
        "ttft": ("sglang:time_to_first_token_seconds",),
        "tpot": ("sglang:time_per_output_token_seconds", "sglang:inter_token_latency_seconds"),
        "e2e": ("sglang:e2e_request_latency_seconds",),
    },
    "llamacpp": {},
}
TIMES = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters are since the server's start."""

    at: float  # seconds since 1970, by the clock of the reader
    engine: str | None  # a backend's name
    counters: Mapping[str, float]  # the names of _COUNTERS
    gauges: Mapping[str, float]  # running_requests, waiting_requests, kv_cache_usage
    times: Mapping[str, Histogram] = field(default_factory=dict)  # of TIMES
    acceptance: Acceptance | None = None  # None: it does not speculate, or does not say
    started_at: float | None = None
    page: Page = field(default_factory=dict, compare=False)

    @property
    def speculates(self) -> bool:
        return self.acceptance is not None


@dataclass(frozen=True, slots=True)
class Growth:
    """What a server did in a stretch of time. Growths of neighbouring stretches add up."""

    start: float
    end: float
    counters: Mapping[str, float]
    gauge_seconds: Mapping[str, float]  # gauge x seconds, so that means add up too
    times: Mapping[str, Histogram]
    acceptance: Acceptance | None
    num_restarts: int = 0
    gap_s: float = 0.0  # in which nobody looked

    @property
    def seconds(self) -> float:
        return self.end - self.start - self.gap_s

    def gauge(self, name: str) -> float | None:
        """Its mean; None where the server has no such gauge."""
        if name not in self.gauge_seconds or self.seconds <= 0:
            return None
        return self.gauge_seconds[name] / self.seconds

    @property
    def seconds_per_token(self) -> float | None:
        """Of one stream after its first token, over all tokens of requests that ended."""
        tokens = self.counters.get("decode_tokens", 0.0)
        return self.counters.get("decode_seconds", 0.0) / tokens if tokens > 0 else None

    @classmethod
    def total(cls, parts: Iterable[Growth]) -> Growth | None:
        """Of one server, in order of time, or of several servers over the same time."""
        every = list(parts)
        if not every:
            return None
        counters: dict[str, float] = {}
        gauges: dict[str, float] = {}
        times: dict[str, Histogram] = {}
        for each in every:
            for name, value in each.counters.items():
                counters[name] = counters.get(name, 0.0) + value
            for name, value in each.gauge_seconds.items():
                gauges[name] = gauges.get(name, 0.0) + value
            for name, histogram in each.times.items():
                known = times.get(name)
                if known is None or known.bounds != histogram.bounds:
                    times[name] = histogram
                else:
                    times[name] = known + histogram
        counted = [each.acceptance for each in every if each.acceptance is not None]
        return cls(
            min(each.start for each in every),
            max(each.end for each in every),
            counters,
            gauges,
            times,
            Acceptance.total(counted) if counted else None,
            sum(each.num_restarts for each in every),
            sum(each.gap_s for each in every),
        )


def read_page(page: Page, at: float) -> Reading:
    engine = engine_of(page)
    family = "vllm" if engine == "outdraft" else engine or ""
    counters = {name: page[key] for name, key in _COUNTERS.get(family, {}).items() if key in page}
    if family == "vllm" and "decode_tokens" in counters:
        counters["decode_tokens"] -= page.get("vllm:request_generation_tokens_count", 0.0)
    found: dict[str, Histogram] = {}
    for name, keys in _HISTOGRAMS.get(family, {}).items():
        for key in keys:
            if (histogram := Histogram.read(page, key)) is not None:
                found[name] = histogram
                break
    return Reading(
        at,
        engine,
        counters,
        read_gauges(page),
        found,
        read_acceptance(page),
        page.get("process_start_time_seconds"),
        page,
    )


def growth(before: Reading, after: Reading) -> Growth:
    """A counter that went down, or another start, is a restart: then it counts from 0."""
    is_new = (
        before.started_at is not None
        and after.started_at is not None
        and after.started_at > before.started_at + 1
    ) or any(after.counters.get(name, value) < value for name, value in before.counters.items())
    earlier: Mapping[str, float] = {} if is_new else before.counters
    counters = {name: value - earlier.get(name, 0.0) for name, value in after.counters.items()}
    seconds = after.at - before.at
    return Growth(
        before.at,
        after.at,
        counters,
        {
            name: seconds * (value + before.gauges.get(name, value)) / 2
            for name, value in after.gauges.items()
        },
        {
            name: histogram.since(None if is_new else before.times.get(name))
            for name, histogram in after.times.items()
        },
        _accepted_since(None if is_new else before.acceptance, after.acceptance),
        int(is_new),
    )


def _accepted_since(before: Acceptance | None, after: Acceptance | None) -> Acceptance | None:
    if after is None or before is None:
        return after
    return Acceptance(
        after.num_drafts - before.num_drafts,
        after.num_draft_tokens - before.num_draft_tokens,
        max(after.num_accepted_tokens - before.num_accepted_tokens, 0),
        after.num_undrafted - before.num_undrafted,
        _less(after.accepted_per_position, before.accepted_per_position),
        _less(after.drafted_per_position, before.drafted_per_position),
    )


def _less(after: list[int], before: list[int]) -> list[int]:
    return [
        max(count - (before[at] if at < len(before) else 0), 0) for at, count in enumerate(after)
    ]


def to_json(reading: Reading) -> dict[str, Any]:
    """A line of a recorded history: the page itself, from which the rest follows."""
    return {"at": reading.at, "page": reading.page}


def from_json(data: Mapping[str, Any]) -> Reading:
    return read_page({str(key): float(value) for key, value in data["page"].items()}, data["at"])

"""Servers in virtual time: every few seconds a reading, as a real server's page would give it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from outdraft.observe.reading import Reading, read_page
from outdraft.workload.running import running_band

K = 4
_BOUNDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5)


@dataclass
class PlantedServer:
    """Writes texts with so many tokens a second. Speculation makes a text `speedup` times as fast;
    what was counted is on the page."""

    seed: int = 0
    speculates: bool = True
    speedup: float = 1.5
    rate: float = 0.5  # share of draft tokens that are accepted
    running: float = 3.0
    plain_s: float = 0.03  # seconds per token without speculation
    max_k: int = K  # 0: nothing is proposed
    has_positions: bool = True
    version: str = "1.0"
    canary: float | None = None  # share of slices; then it is a server of ours
    bands: dict[str, float] = field(default_factory=dict)  # of temperatures → what its drafts give
    off_bands: set[str] = field(default_factory=set)
    method: str | None = None  # that a server of ours says it has
    drafted: float = 1.0  # share of the tokens that are written in rounds with a draft
    started_at: float = 0.0
    page: dict[str, float] = field(default_factory=dict)
    requests: float = 0.0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        for name in ("generation_tokens_total", "prompt_tokens_total", "num_preemptions_total",
                     "request_decode_time_seconds_sum", "request_generation_tokens_sum",
                     "request_generation_tokens_count",
                     "e2e_request_latency_seconds_count"):  # fmt: skip
            self._count(name, 0)

    @property
    def is_drafting(self) -> bool:
        return self.speculates and self.max_k > 0

    @property
    def pace_s(self) -> float:
        return self.plain_s / (self.speedup if self.is_drafting else 1.0)

    def restart(self, at: float) -> None:
        self.page = {}
        self.requests = 0.0
        self.started_at = at
        self.__post_init__()

    def advance(self, seconds: float) -> None:
        """Texts of 50 tokens on average."""
        wobble = self._rng.lognormvariate(0, 0.1)
        tokens = seconds * self.running * wobble / self.pace_s
        self.requests += tokens / 50
        done = math.floor(self.requests)
        self.requests -= done
        self._count("generation_tokens_total", round(tokens))
        self._count("prompt_tokens_total", 100 * done)
        self._count("e2e_request_latency_seconds_count", done)
        self._count("request_generation_tokens_count", done)
        self._count("request_generation_tokens_sum", 50 * done)
        pace = self.pace_s * self._rng.lognormvariate(0, 0.03)
        self._count("request_decode_time_seconds_sum", 49 * done * pace)
        for bound in (*_BOUNDS, math.inf):
            label = "+Inf" if math.isinf(bound) else f"{bound:g}"
            name = f'request_time_per_output_token_seconds_bucket{{le="{label}"}}'
            self._count(name, done if pace <= bound else 0)
        self._count("request_time_per_output_token_seconds_sum", done * pace)
        if self.speculates:
            self._draft(tokens)
        if self.canary is not None:
            self._slice(seconds, self.canary)

    def _slice(self, seconds: float, share: float) -> None:
        is_off, running = self.max_k == 0, running_band(self.running)
        self._sides(seconds, share, self.speedup, is_off, "_total", f'running="{running}"')
        for band, speedup in self.bands.items() if not is_off else ():
            label = f'temperature="{band}"'
            is_band_off = band in self.off_bands
            self._sides(seconds, share, speedup, is_band_off, "_by_temperature_total", label)

    def _sides(
        self, seconds: float, share: float, speedup: float, is_off: bool, name: str, label: str
    ) -> None:
        fast, slow = self.plain_s / speedup, self.plain_s
        sides = (("stopped", slow), ("tried", fast)) if is_off else (
            ("speculating", fast), ("plain", slow))  # fmt: skip
        for (side, pace), part in zip(sides, (1 - share, share), strict=True):
            spent = part * seconds * self.running
            tokens = spent / pace * self._rng.lognormvariate(0, 0.1)
            for what, value in (("seconds", spent), ("tokens", tokens)):
                key = f'outdraft:decode_{what}{name}{{side="{side}",{label}}}'
                self.page[key] = self.page.get(key, 0.0) + value

    def _draft(self, tokens: float) -> None:
        k = min(self.max_k, K)
        chance = self.rate * self._rng.lognormvariate(0, 0.05)
        rounds = round(self.drafted * tokens / (1 + chance * k)) if k else 0
        self._count("spec_decode_num_drafts_total", rounds)
        self._count("spec_decode_num_draft_tokens_total", rounds * k)
        self._count("spec_decode_num_accepted_tokens_total", round(rounds * k * chance))

    def reading(self, at: float) -> Reading:
        gauges = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0.0,
            "vllm:kv_cache_usage_perc": 0.3,
            "process_start_time_seconds": self.started_at,
            'served_model{model_name="m"}': 1.0,
        }
        if self.canary is not None:
            gauges["outdraft:speculation_stopped"] = float(self.max_k == 0)
        if self.method is not None:
            gauges[f'outdraft:speculation_method{{method="{self.method}"}}'] = 1.0
        return read_page({**self.page, **gauges}, at, self.version)

    def _count(self, name: str, number: float) -> None:
        key = f"vllm:{name}"
        self.page[key] = self.page.get(key, 0.0) + number

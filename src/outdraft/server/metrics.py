"""Prometheus metrics. Their names, descriptions and buckets are in `metrics.toml`.

Most counters and gauges are read from the engine at a scrape; a step only counts what the engine
does not keep.
"""

import time
import tomllib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files as resources
from typing import Any

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from outdraft.engine.engine import Engine
from outdraft.engine.outputs import Generation, StepStats, Update
from outdraft.goodput import net_benefit, plain_seconds
from outdraft.server.sides import Sides
from outdraft.step_costs import RoundCosts
from outdraft.workload.temperatures import temperature_band

_TABLE = tomllib.loads(resources("outdraft.server").joinpath("metrics.toml").read_text("utf-8"))
_SHARES = tuple(part / 10 for part in range(1, 11))
_WINDOW_S = 60.0  # over which the current net benefit is averaged


class Metrics(Collector):
    """`observe_*` are called by the engine's thread, everything else at a scrape."""

    def __init__(self, engine: Engine, model_name: str, costs: RoundCosts) -> None:
        self._engine = engine
        self._costs = costs
        self._labels = {"model_name": model_name, "engine": "0"}
        self._registry = CollectorRegistry()
        self._num_prompt_tokens = 0
        self._num_emitted = 0
        self._rounds: Counter[int] = Counter()  # by draft length
        self._finished = dict.fromkeys(("stop", "length", "abort"), 0)  # by reason
        self._sides = Sides(speculates=not engine.speculation.is_off)
        self._plain_s = 0.0  # estimated, of the steps that speculated
        self._spent_s = 0.0
        self._recent: deque[tuple[float, float, float]] = deque()  # (when, plain, spent)
        self._histograms: dict[str, Histogram] = {}
        for name, buckets in _TABLE["histogram"].items():
            words = name.partition(":")[2].replace("_", " ")
            histogram = Histogram(
                name,
                words,
                list(self._labels),
                buckets=_TABLE["buckets"][buckets],
                registry=self._registry,
            )
            self._histograms[name] = histogram.labels(**self._labels)
        self._acceptance = Histogram(
            "outdraft:request_acceptance_rate",
            "Accepted over proposed draft tokens of a finished choice, by its temperature",
            [*self._labels, "temperature"],
            buckets=_SHARES,
            registry=self._registry,
        )
        self._registry.register(self)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def observe_step(
        self,
        stats: StepStats,
        updates: Sequence[Update],
        *,
        in_slice: bool = False,
        band: str = "",
    ) -> None:
        """`in_slice`: it was one of the canary's, for a band of temperatures or for everybody."""
        self._sides.observe(stats, in_slice=in_slice, band=band)
        self._num_prompt_tokens += stats.num_prompt_tokens
        self._num_emitted += stats.num_emitted
        self._rounds.update(stats.draft_lengths)
        self._histograms["vllm:iteration_tokens_total"].observe(stats.num_tokens)
        latency = self._histograms["vllm:inter_token_latency_seconds"]
        for _ in stats.draft_lengths:
            latency.observe(stats.seconds)
        if stats.is_decoding and any(stats.draft_lengths):
            plain = plain_seconds(stats.num_emitted, stats.num_sequences, self._plain_step_s(stats))
            self._plain_s += plain
            self._spent_s += stats.seconds
            now = time.monotonic()
            self._recent.append((now, plain, stats.seconds))
            while self._recent[0][0] < now - _WINDOW_S:
                self._recent.popleft()
        for update in updates:
            if update.generation is not None:
                self._observe_end(update.generation)

    def _plain_step_s(self, stats: StepStats) -> float:
        """Seconds that this step would have taken without drafts: its own time less drafting, by
        what costs say of both. So a moment in which the machine is slow cancels out."""
        shape = stats.num_sequences, stats.mean_context
        verification = self._costs.verification(stats.num_tokens, *shape)
        share = self._costs.verification(stats.num_sequences, *shape) / verification
        return (stats.seconds - sum(stats.drafting_s.values())) * share

    def observe_abort(self, num_choices: int) -> None:
        self._finished["abort"] += num_choices

    def _observe_end(self, done: Generation) -> None:
        self._finished[done.finish_reason.value if done.finish_reason else "abort"] += 1
        moments = {
            "added": done.added_ns,
            "started": done.started_ns or done.added_ns,
            "first": done.first_token_ns or done.added_ns,
            "last": done.finished_ns or done.added_ns,
        }
        values: dict[str, float] = {
            name: (moments[end] - moments[start]) / 1e9
            for name, (start, end) in _TABLE["span"].items()
        }
        values["vllm:request_prompt_tokens"] = done.num_prompt_tokens
        values["vllm:request_generation_tokens"] = len(done.tokens)
        if len(done.tokens) > 1:
            per_token = values["vllm:request_decode_time_seconds"] / (len(done.tokens) - 1)
            values["vllm:request_time_per_output_token_seconds"] = per_token
        for name, value in values.items():
            self._histograms[name].observe(value)
        if done.acceptance.rate is not None:
            band = temperature_band(done.temperature)
            self._acceptance.labels(**self._labels, temperature=band).observe(done.acceptance.rate)

    def collect(self) -> Iterator[Metric]:
        scheduler, pool = self._engine.scheduler, self._engine.pool
        hits, queries = scheduler.prefix_hits
        values: dict[str, float | Mapping[Any, float]] = {
            "vllm:num_requests_running": scheduler.num_running,
            "vllm:num_requests_waiting": scheduler.num_waiting,
            "vllm:kv_cache_usage_perc": pool.num_used / (pool.num_blocks - 1),
            "vllm:num_preemptions": scheduler.num_preemptions,
            "vllm:prompt_tokens": self._num_prompt_tokens,
            "vllm:generation_tokens": self._num_emitted,
            "vllm:prefix_cache_queries": queries,
            "vllm:prefix_cache_hits": hits,
            "vllm:request_success": self._finished,
            "outdraft:step_seconds": self._costs.by_tokens,
            "outdraft:decode_seconds": self._sides.by_load.seconds.copy(),
            "outdraft:decode_tokens": self._sides.by_load.tokens.copy(),
            "outdraft:decode_seconds_by_temperature": self._sides.by_temperature.seconds.copy(),
            "outdraft:decode_tokens_by_temperature": self._sides.by_temperature.tokens.copy(),
        }
        if not self._engine.speculation.is_off:
            values |= self._speculation()
        return (self._family(name, value) for name, value in values.items())

    def _speculation(self) -> dict[str, float | Mapping[Any, float]]:
        acceptance = self._engine.acceptance
        rounds = dict(sorted(self._rounds.copy().items()))
        values: dict[str, float | Mapping[Any, float]] = {
            "vllm:spec_decode_num_drafts": acceptance.num_drafts,
            "vllm:spec_decode_num_draft_tokens": acceptance.num_draft_tokens,
            "vllm:spec_decode_num_accepted_tokens": acceptance.num_accepted_tokens,
            "vllm:spec_decode_num_accepted_tokens_per_pos": dict(
                enumerate([*acceptance.accepted_per_position])
            ),
            "outdraft:draft_tokens_per_pos": dict(enumerate([*acceptance.drafted_per_position])),
            "outdraft:rounds": rounds,
            "outdraft:rounds_without_draft": rounds.get(0, 0),
            "outdraft:speculation_spent_seconds": self._spent_s,
            "outdraft:speculation_plain_seconds": self._plain_s,
            "outdraft:speculation_method": {self._engine.speculation.method: 1.0},
            "outdraft:speculation_max_k": self._engine.k_at(
                max(self._engine.scheduler.num_running, 1)
            ),
            "outdraft:speculation_stopped": float(self._engine.limits.stops_all),
        }
        drafting = self._engine.drafting
        if drafting is not None:
            counts = drafting.acceptance.items()
            values["outdraft:proposer_draft_tokens"] = {n: a.num_draft_tokens for n, a in counts}
            values["outdraft:proposer_accepted_tokens"] = {
                name: acceptance.num_accepted_tokens for name, acceptance in counts
            }
            values["outdraft:proposer_rounds"] = {
                (name or "none", k): count
                for (name, k), count in sorted(drafting.chosen.copy().items())
            }
        recent = list(self._recent)
        spent = sum(each[2] for each in recent)
        if spent:
            benefit = net_benefit(sum(each[1] for each in recent), spent)
            values["outdraft:speculation_net_benefit"] = benefit
        return values

    def _family(self, name: str, value: float | Mapping[Any, float]) -> Metric:
        """One value, or one for each value of the metric's own label, or labels."""
        is_counter = name in _TABLE["counter"]
        words = _TABLE["counter" if is_counter else "gauge"][name]
        own = _TABLE["label"][name] if isinstance(value, Mapping) else []
        own = [own] if isinstance(own, str) else own
        kind = CounterMetricFamily if is_counter else GaugeMetricFamily
        family = kind(name, words, labels=[*self._labels, *own])
        for key, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
            keys = key if isinstance(key, tuple) else (key,) * len(own)
            family.add_metric([*self._labels.values(), *map(str, keys)], number)
        return family

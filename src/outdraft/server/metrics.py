"""Prometheus metrics: vLLM's names where it has one, `outdraft:` for what nobody else counts.

Counters and gauges are read off the engine when somebody scrapes; a step pays only for the few
numbers that the engine does not keep.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from outdraft.engine.costs import StepCosts
from outdraft.engine.engine import Engine
from outdraft.engine.outputs import Generation, Update
from outdraft.goodput import net_benefit, plain_seconds
from outdraft.workload.temperatures import temperature_band

_TIMES = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1),
    *(0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    *(160.0, 640.0, 2560.0),
)
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000)
_STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_SHARES = tuple(part / 10 for part in range(1, 11))
_WINDOW_S = 60.0  # over which the present net benefit is averaged


class Metrics(Collector):
    """`observe_*` are called by the engine's thread, everything else by whoever scrapes."""

    def __init__(self, engine: Engine, model_name: str, costs: StepCosts) -> None:
        self._engine = engine
        self._costs = costs
        self._labels: Mapping[str, str] = {"model_name": model_name, "engine": "0"}
        self._registry = CollectorRegistry()
        self._num_prompt_tokens = 0
        self._num_emitted = 0
        self._rounds: Counter[int] = Counter()  # by draft length
        self._finished: Counter[str] = Counter()  # by reason
        self._plain_s = 0.0  # estimated, of the steps that speculated
        self._spent_s = 0.0
        self._recent: deque[tuple[float, float, float]] = deque()  # (when, plain, spent)
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", _TIMES)
        self._itl = self._histogram("vllm:inter_token_latency_seconds", _TIMES)
        self._tpot = self._histogram("vllm:request_time_per_output_token_seconds", _TIMES)
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", _TIMES)
        self._queue = self._histogram("vllm:request_queue_time_seconds", _TIMES)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", _TIMES)
        self._decode = self._histogram("vllm:request_decode_time_seconds", _TIMES)
        self._inference = self._histogram("vllm:request_inference_time_seconds", _TIMES)
        self._prompt_length = self._histogram("vllm:request_prompt_tokens", _LENGTHS)
        self._output_length = self._histogram("vllm:request_generation_tokens", _LENGTHS)
        self._step_tokens = self._histogram("vllm:iteration_tokens_total", _STEP_TOKENS)
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

    # ------------------------------------------------------------ by the engine's thread

    def observe_step(self, updates: Sequence[Update]) -> None:
        stats = self._engine.last_step
        if stats is None:
            return
        self._num_prompt_tokens += stats.num_prompt_tokens
        self._num_emitted += stats.num_emitted
        self._rounds.update(stats.draft_lengths)
        self._step_tokens.observe(stats.num_tokens)
        for _ in stats.draft_lengths:
            self._itl.observe(stats.seconds)
        if stats.is_decoding and any(stats.draft_lengths):
            step_s = self._costs.seconds(stats.num_sequences)
            plain = plain_seconds(stats.num_emitted, stats.num_sequences, step_s)
            self._plain_s += plain
            self._spent_s += stats.seconds
            now = time.monotonic()
            self._recent.append((now, plain, stats.seconds))
            while self._recent[0][0] < now - _WINDOW_S:
                self._recent.popleft()
        for update in updates:
            if update.generation is not None:
                self._observe_end(update.generation)

    def observe_abort(self, num_choices: int) -> None:
        self._finished["abort"] += num_choices

    def _observe_end(self, done: Generation) -> None:
        first, last = done.first_token_ns or done.added_ns, done.finished_ns or done.added_ns
        started = done.started_ns or done.added_ns
        self._finished[done.finish_reason.value if done.finish_reason else "abort"] += 1
        self._ttft.observe((first - done.added_ns) / 1e9)
        self._e2e.observe((last - done.added_ns) / 1e9)
        self._queue.observe((started - done.added_ns) / 1e9)
        self._prefill.observe((first - started) / 1e9)
        self._decode.observe((last - first) / 1e9)
        self._inference.observe((last - started) / 1e9)
        self._prompt_length.observe(done.num_prompt_tokens)
        self._output_length.observe(len(done.tokens))
        if len(done.tokens) > 1:
            self._tpot.observe((last - first) / 1e9 / (len(done.tokens) - 1))
        if done.acceptance.rate is not None:
            band = temperature_band(done.temperature)
            self._acceptance.labels(**self._labels, temperature=band).observe(done.acceptance.rate)

    # ------------------------------------------------------------ at a scrape

    def collect(self) -> Iterator[Metric]:
        engine, pool = self._engine, self._engine.pool
        hits, queries = engine.prefix_hits
        yield self._gauge("vllm:num_requests_running", "Texts being written", engine.num_running)
        yield self._gauge("vllm:num_requests_waiting", "Texts that wait", engine.num_waiting)
        used = pool.num_used / (pool.num_blocks - 1)
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1", used)
        yield self._counter(
            "vllm:num_preemptions", "Texts sent back to wait", engine.num_preemptions
        )
        yield self._counter("vllm:prompt_tokens", "Prompt tokens computed", self._num_prompt_tokens)
        yield self._counter("vllm:generation_tokens", "Tokens written", self._num_emitted)
        yield self._counter("vllm:prefix_cache_queries", "Prompt tokens looked for", queries)
        yield self._counter("vllm:prefix_cache_hits", "Prompt tokens found cached", hits)
        ended = self._family("vllm:request_success", "Finished choices", "finished_reason")
        for reason in ("stop", "length", "abort"):
            ended.add_metric([*self._labels.values(), reason], self._finished[reason])
        yield ended
        steps = GaugeMetricFamily(
            "outdraft:step_seconds",
            "What a step of so many tokens takes, measured at start-up",
            labels=[*self._labels, "tokens"],
        )
        for num_tokens, seconds in self._costs.measured.items():
            steps.add_metric([*self._labels.values(), str(num_tokens)], seconds)
        yield steps
        if not engine.speculation.is_off:
            yield from self._speculation()

    def _speculation(self) -> Iterator[Metric]:
        acceptance = self._engine.acceptance
        name = "vllm:spec_decode_num"
        yield self._counter(f"{name}_drafts", "Rounds with a draft", acceptance.num_drafts)
        yield self._counter(
            f"{name}_draft_tokens", "Draft tokens proposed", acceptance.num_draft_tokens
        )
        yield self._counter(
            f"{name}_accepted_tokens", "Draft tokens accepted", acceptance.num_accepted_tokens
        )
        # The second one is not in vLLM's name: its own benchmark adds up all that begins with
        # `…num_draft_tokens`.
        for kind, full_name, counts in (
            ("accepted", f"{name}_accepted_tokens_per_pos", acceptance.accepted_per_position),
            ("proposed", "outdraft:draft_tokens_per_pos", acceptance.drafted_per_position),
        ):
            by_place = self._family(
                full_name, f"Draft tokens by their place in the round: {kind}", "position"
            )
            for position, count in enumerate([*counts]):
                by_place.add_metric([*self._labels.values(), str(position)], count)
            yield by_place
        rounds = self._family("outdraft:rounds", "Rounds by the draft length chosen", "k")
        for k, count in sorted(self._rounds.copy().items()):
            rounds.add_metric([*self._labels.values(), str(k)], count)
        yield rounds
        yield self._counter(
            "outdraft:rounds_without_draft", "Rounds with nothing proposed", self._rounds[0]
        )
        yield self._counter(
            "outdraft:speculation_spent_seconds", "In steps that speculated", self._spent_s
        )
        yield self._counter(
            "outdraft:speculation_plain_seconds",
            "What the same tokens would have taken without, by step costs measured at start-up",
            self._plain_s,
        )
        recent = list(self._recent)
        spent = sum(each[2] for each in recent)
        if spent:
            benefit = net_benefit(sum(each[1] for each in recent), spent)
            yield self._gauge(
                "outdraft:speculation_net_benefit",
                "Estimated gain in speed over the last minute of speculation; below 0 it loses",
                benefit,
            )

    # ------------------------------------------------------------ the makings

    def _histogram(self, name: str, buckets: Sequence[float]) -> Histogram:
        words = name.partition(":")[2].replace("_", " ")
        made = Histogram(name, words, list(self._labels), buckets=buckets, registry=self._registry)
        return made.labels(**self._labels)

    def _gauge(self, name: str, words: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, words, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _counter(self, name: str, words: str, value: float) -> Metric:
        family = CounterMetricFamily(name, words, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _family(self, name: str, words: str, label: str) -> CounterMetricFamily:
        return CounterMetricFamily(name, words, labels=[*self._labels, label])

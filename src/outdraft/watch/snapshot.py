"""What a watch knows at one moment: the value that the terminal, the page, /metrics and `--json`
are made of. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import Growth
from outdraft.watch.findings import Action, Advice, Alarm, Benefit, Notice


class ReplicaState(StrEnum):
    NEW = "new"  # nothing is known yet: it was read once, or never
    UP = "up"
    DOWN = "down"  # the last question had no usable answer
    GONE = "gone"  # no longer among the replicas


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Of a histogram, linear within its buckets."""

    count: float
    mean: float | None
    p10: float | None
    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of(cls, histogram: Histogram) -> Quantiles:
        points = (histogram.quantile(q) for q in (0.1, 0.5, 0.9, 0.99))
        return cls(histogram.count, histogram.mean, *points)


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """Figures of a stretch of time. None: the server does not say, or nothing happened."""

    start: float
    end: float
    seconds: float  # in which somebody looked
    num_requests: float | None
    num_tokens: float
    num_restarts: int
    tokens_per_s: float | None = None
    requests_per_s: float | None = None
    seconds_per_token: float | None = None  # of a stream after its first token
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    # Shares of drafts whose first, second, … token was accepted: how many had one is not known of
    # every engine, so these are not the rates of `bench`.
    acceptance_by_position: tuple[float, ...] = ()
    mean_k: float | None = None
    tokens_per_round: float | None = None  # rounds without a draft included
    times: Mapping[str, Quantiles] = field(default_factory=dict)  # ttft, tpot, e2e: seconds
    # Acceptance rates of single requests, by band of temperature and over all of them.
    bands: Mapping[str, Quantiles] = field(default_factory=dict)
    acceptance_of_requests: Quantiles | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None  # 0 to 1
    preemptions: float | None = None
    prefix_hit_rate: float | None = None


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One replica, or all of them together."""

    name: str  # no credentials; FLEET: all of them
    state: ReplicaState
    engine: str | None = None
    model: str | None = None
    version: str | None = None
    reason: str = ""  # why it is down
    speculates: bool | None = None
    window: WindowFigures | None = None  # of `Snapshot.window_s`
    benefit: Benefit | None = None
    parts: tuple[Benefit, ...] = ()  # the benefit of parts of the traffic, where known
    alarms: tuple[Alarm, ...] = ()
    advice: Advice | None = None
    method: str | None = None  # that it speculates with, where it says so


@dataclass(frozen=True, slots=True)
class Posting:
    """How the webhook does."""

    problem: str = ""  # of the last try; empty: it was taken
    num_lost: int = 0  # events that were given up


@dataclass(frozen=True, slots=True)
class Snapshot:
    at: float  # seconds since 1970
    since: float  # when the watch began, earlier runs of the same state included
    window_s: float
    replicas: tuple[ReplicaView, ...]
    fleet: ReplicaView
    notices: tuple[Notice, ...] = ()  # the last ones, oldest first
    posting: Posting | None = None  # None: there is no webhook
    has_answered: bool = True  # anybody, since this run of the watch began

    @property
    def says_keep(self) -> bool:
        """Nobody that is still watched is advised to change anything."""
        views = [view for view in self.replicas if view.state is not ReplicaState.GONE]
        every = (view.advice for view in (self.fleet, *views))
        return all(advice is None or advice.action is Action.KEEP for advice in every)

    @property
    def is_kept(self) -> bool:
        """KEEP is advised, nothing else is, and somebody who drafts answered at the last look: what
        stood before all of them went away is no answer about now."""
        is_there = self.fleet.state is ReplicaState.UP and self.fleet.speculates is not False
        return is_there and self.says_keep and self.fleet.advice is not None

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        return tuple(alarm for view in (self.fleet, *self.replicas) for alarm in view.alarms)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for view, written in zip(
            (self.fleet, *self.replicas), (data["fleet"], *data["replicas"]), strict=True
        ):
            if view.advice is not None:
                written["advice"]["words"] = view.advice.words
        return data


def window_figures(window: Growth) -> WindowFigures:
    counters, acceptance, seconds = window.counters, window.acceptance, window.seconds
    queries = counters.get("prefix_queries", 0.0)
    shares, of_all = window.acceptance_shares, window.acceptance_share
    return WindowFigures(
        window.start,
        window.end,
        seconds,
        counters.get("num_requests"),
        counters.get("num_tokens", 0.0),
        window.num_restarts,
        tokens_per_s=window.per_second("num_tokens"),
        requests_per_s=window.per_second("num_requests"),
        seconds_per_token=window.seconds_per_token,
        acceptance_rate=acceptance.rate if acceptance else None,
        acceptance_length=acceptance.length if acceptance else None,
        acceptance_by_position=acceptance.survival_per_position if acceptance else (),
        mean_k=acceptance.mean_k if acceptance else None,
        tokens_per_round=tokens_per_round(window),
        times={name: Quantiles.of(each) for name, each in window.times.items() if each.count},
        bands={band: Quantiles.of(each) for band, each in shares.items() if each.count},
        acceptance_of_requests=None if of_all is None or not of_all.count else Quantiles.of(of_all),
        running=window.gauge("running_requests"),
        waiting=window.gauge("waiting_requests"),
        kv_usage=window.gauge("kv_cache_usage"),
        preemptions=counters.get("num_preemptions"),
        prefix_hit_rate=counters.get("prefix_hits", 0.0) / queries if queries > 0 else None,
    )


def tokens_per_round(window: Growth) -> float | None:
    """Tokens of a text after its first, per decoding step, steps without a draft included. None
    where first tokens are not counted.

    Steps do not follow from tokens and accepted ones where they are counted: vLLM also counts
    accepted tokens that lie behind the end of a text.
    """
    counters, acceptance = window.counters, window.acceptance
    first_tokens = counters.get("num_first_tokens", counters.get("num_requests"))
    if acceptance is None or first_tokens is None:
        return None
    tokens = counters.get("num_tokens", 0.0) - first_tokens
    steps = counters.get("num_steps", tokens - acceptance.num_accepted_tokens)
    return tokens / steps if steps > 0 else None

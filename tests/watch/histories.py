"""Days with a known truth: what servers did in every minute, and what was wrong with them.

Traffic follows the hour, comes in bursts and changes its mix of temperatures and kinds of texts,
so that acceptance moves by a fifth while nothing is wrong. A fault is something that is done to a
`Course`; everything is drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from outdraft.acceptance import Acceptance
from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import Growth
from outdraft.watch.alarms import Past, Rows, find_alarms, stand
from outdraft.watch.alarms.standing import NOTHING_STANDS
from outdraft.watch.findings import Alarm
from outdraft.watch.history import Change

Floats = NDArray[np.float64]

BEGIN = 1_800_000_000.0
DAY = 1440
K = 5
BOUNDS = (*(0.001 * 1.35**i for i in range(44)), np.inf)
_MEAN_TOKENS, _MEAN_PROMPT = 180.0, 400.0
_STEP_S, _ROUND_COST = 0.02, 1.3
_CHANCES = {"code": 0.8, "chat": 0.68, "hot": 0.52}  # of a draft token, given those before it


def minute(at: float) -> float:
    return BEGIN + 60 * at


@dataclass
class Course:
    """What is done to each replica in each minute: (replicas, minutes)."""

    num_replicas: int = 3
    num_minutes: int = DAY
    peak: float = 25.0  # requests a minute and replica
    begins: float | None = None  # at this minute of the day; None: at any. It is quietest at 0
    chance: Floats = field(init=False)  # factor of the chance of a draft token
    load: Floats = field(init=False)
    pace: Floats = field(init=False)  # factor of seconds per token
    tail: Floats = field(init=False)  # share of requests that take eight times as long
    drafts: Floats = field(init=False)  # 0: none are proposed
    speculates: Floats = field(init=False)  # 0: no counters of drafts either
    long: Floats = field(init=False)  # share of texts that are ten times as long
    kv: Floats = field(init=False)  # least KV usage
    gone: Floats = field(init=False)  # nobody looked
    restarts: Floats = field(init=False)
    changes: list[tuple[int, Change]] = field(default_factory=list)

    def __post_init__(self) -> None:
        shape = self.num_replicas, self.num_minutes
        for name in ("chance", "load", "pace", "drafts", "speculates"):
            setattr(self, name, np.ones(shape))
        for name in ("long", "kv", "gone", "restarts"):
            setattr(self, name, np.zeros(shape))
        self.tail = np.full(shape, 0.004)

    def deploy(self, at: int, replica: int, what: str = "version") -> None:
        change = Change(minute(at), what, "0.11.0", "0.12.0")
        self.changes.append((replica, change))
        self.restart(at, replica)

    def restart(self, at: int, replica: int) -> None:
        """Three minutes without a server, then counters from 0."""
        self.gone[replica, at : at + 3] = 1
        self.restarts[replica, at + 3] = 1


@dataclass(frozen=True)
class Day:
    minutes: Mapping[str, list[Growth]]
    changes: Mapping[str, tuple[Change, ...]]


def generate(course: Course, seed: int) -> Day:
    rng = np.random.default_rng(seed)
    minutes = course.num_minutes
    begins = rng.uniform(0, DAY) if course.begins is None else course.begins
    hours = (np.arange(minutes) + begins) / DAY * 2 * np.pi
    by_hour = 0.08 + 0.92 * (0.5 - 0.5 * np.cos(hours))
    bursts = np.exp(_wander(rng, minutes, 20, 0.25))
    for at in rng.integers(0, minutes, size=4):
        bursts[at : at + int(rng.integers(4, 16))] *= rng.uniform(1.8, 3.0)
    # The mixes of the hour, and a little of each replica's own.
    hot = 0.3 + 0.08 * np.sin(hours + rng.uniform(0, 6)) + _wander(rng, minutes, 120, 0.05)
    code = 0.4 + 0.1 * np.sin(hours + rng.uniform(0, 6)) + _wander(rng, minutes, 180, 0.07)
    growths: dict[str, list[Growth]] = {}
    for replica in range(course.num_replicas):
        own = np.exp(_wander(rng, minutes, 60, 0.1))
        rate = course.peak * by_hour * bursts * own * course.load[replica]
        mix = (
            np.clip(hot + _wander(rng, minutes, 60, 0.03), 0.05, 0.7),
            np.clip(code + _wander(rng, minutes, 60, 0.03), 0.05, 0.9),
        )
        growths[f"r{replica}"] = list(_replica(rng, course, replica, rate, mix))
    changes = {
        name: tuple(change for replica, change in course.changes if replica == at)
        for at, name in enumerate(growths)
    }
    return Day(growths, changes)


def _wander(rng: np.random.Generator, minutes: int, memory: float, sigma: float) -> Floats:
    """A walk that is drawn back to 0: an AR(1) with so many minutes of memory."""
    stay = np.exp(-1 / memory)
    noise = rng.normal(0, sigma * np.sqrt(1 - stay**2), minutes)
    noise[0] = rng.normal(0, sigma)
    walk = np.empty(minutes)
    last = 0.0
    for at, step in enumerate(noise):
        last = stay * last + step
        walk[at] = last
    return walk


def _replica(
    rng: np.random.Generator,
    course: Course,
    replica: int,
    rate: Floats,
    mix: tuple[Floats, Floats],
) -> Iterator[Growth]:
    minutes = course.num_minutes
    arrivals = rng.poisson(rate * (1 - course.gone[replica]))
    at = np.repeat(np.arange(minutes), arrivals)
    total = len(at)
    is_hot, is_code = rng.random(total) < mix[0][at], rng.random(total) < mix[1][at]
    kind = np.where(is_hot, _CHANCES["hot"], np.where(is_code, _CHANCES["code"], _CHANCES["chat"]))
    is_long = rng.random(total) < course.long[replica, at]
    mean = kind * course.chance[replica, at] * np.where(is_long, 0.08, 1.0)
    chance = rng.beta(8 * mean + 1e-3, 8 * (1 - mean))
    tokens = np.clip(rng.lognormal(np.log(_MEAN_TOKENS) - 0.4, 0.9, total), 4, 4000).round()
    prompts = np.clip(rng.lognormal(np.log(_MEAN_PROMPT) - 0.4, 0.9, total), 8, 20000).round()
    prompts = np.where(is_long, 10 * prompts, prompts)
    has_draft = course.drafts[replica, at] * course.speculates[replica, at]
    expected = sum(chance**i for i in range(1, K + 1)) * has_draft
    rounds = np.ceil(tokens / (1 + expected))
    accepted = rng.normal(rounds * expected, np.sqrt(rounds * (expected + 0.3)))
    accepted = np.clip(accepted, 0, K * rounds).round() * has_draft
    load = 1 + 0.04 * np.minimum(rate, 60)[at]
    cost = np.where(has_draft > 0, _ROUND_COST, 1.0)
    tpot = _STEP_S * load * cost / (1 + expected) * rng.lognormal(0, 0.15, total)
    tpot = tpot * course.pace[replica, at]
    tpot = np.where(rng.random(total) < course.tail[replica, at], 8 * tpot, tpot)
    e2e = 0.1 + 0.0002 * prompts + tokens * tpot

    def per_minute(values: Floats) -> Floats:
        return np.bincount(at, weights=values, minlength=minutes)

    sums = {
        "num_tokens": per_minute(tokens),
        "num_prompt_tokens": per_minute(prompts),
        "num_requests": per_minute(np.ones(total)),
        "decode_seconds": per_minute(tpot * (tokens - 1)),
        "decode_tokens": per_minute(tokens - 1),
    }
    running = per_minute(e2e) / 60
    pressed = course.kv[replica] > 0.9
    kv = np.clip(0.05 + 0.025 * running + rng.normal(0, 0.02, minutes), 0, 0.9)
    kv = np.maximum(kv, course.kv[replica])
    sums["num_preemptions"] = np.where(
        pressed, rng.poisson(2.0, minutes), rng.random(minutes) < 0.002
    )
    gauges = {
        "running_requests": running,
        "waiting_requests": np.where(pressed, 6.0, np.maximum(running - 25, 0) * 0.2),
        "kv_cache_usage": kv,
    }
    histograms = {"tpot": _histograms(tpot, at, minutes), "e2e": _histograms(e2e, at, minutes)}
    drafted = per_minute(rounds * has_draft), per_minute(rounds * K * has_draft)
    right = per_minute(accepted)
    start = 0
    for end in range(1, minutes + 1):
        this = end - 1
        if course.gone[replica, this] and end < minutes:
            continue  # the next one that is seen covers it
        gap_s = 60.0 * (this - start)
        acceptance = Acceptance(int(drafted[0][this]), int(drafted[1][this]), int(right[this]))
        yield Growth(
            minute(start),
            minute(end),
            {name: float(values[this]) for name, values in sums.items()},
            {name: 60.0 * float(values[this]) for name, values in gauges.items()},
            {
                name: Histogram(BOUNDS, tuple(counts[this].tolist()), 0.0)
                for name, counts in histograms.items()
            },
            acceptance if course.speculates[replica, this] else None,
            int(course.restarts[replica, this]),
            gap_s,
        )
        start = end


def _histograms(values: Floats, at: NDArray[np.int64], minutes: int) -> Floats:
    size = len(BOUNDS)
    bucket = np.minimum(np.searchsorted(BOUNDS, values), size - 1)
    counts = np.bincount(at * size + bucket, minlength=minutes * size)
    return counts.astype(float).reshape(minutes, size)


def tens_of(minutes: list[Growth]) -> list[Growth]:
    """Ten minutes each, as a history keeps them."""
    groups: dict[int, list[Growth]] = {}
    for each in minutes:
        groups.setdefault(int((each.end - BEGIN - 1) // 600), []).append(each)
    return [total for group in groups.values() if (total := Growth.total(group))]


@dataclass(frozen=True)
class Raised:
    at: float  # minutes since the beginning
    alarm: Alarm


def replay(day: Day, first: int = 1, *, drafts_as_it_pays: bool = False) -> list[Raised]:
    """All alarms that a watch would raise, looking once a minute from `first` on."""
    minutes = {name: Rows.of(growths) for name, growths in day.minutes.items()}
    tens = {name: Rows.of(tens_of(growths)) for name, growths in day.minutes.items()}
    last = max(rows.end for rows in minutes.values())
    standings, raised = NOTHING_STANDS, []
    for at in range(first, int((last - BEGIN) / 60) + 1):
        now = minute(at)
        pasts = {
            name: Past(
                rows.between(now - 4 * 3600, now),
                tens[name].between(now - 48 * 3600, now),
                tuple(change for change in day.changes[name] if change.at <= now),
                "m",
                drafts_as_it_pays=drafts_as_it_pays,
            )
            for name, rows in minutes.items()
        }
        standings, new, _ = stand(standings, find_alarms(pasts, now), now, pasts)
        raised += [Raised(at, alarm) for alarm in new]
    return raised

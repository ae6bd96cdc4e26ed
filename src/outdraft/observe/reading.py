"""What a server says of itself at one moment, and what it did between two moments: the same words
for every engine. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.observe.counters import engine_of, read_acceptance, read_gauges
from outdraft.observe.histogram import Histogram
from outdraft.observe.names import (
    BAND_SECONDS,
    BAND_TOKENS,
    COUNTERS,
    HISTOGRAMS,
    METHOD,
    NAMES,
    ONE_TOKEN,
    REQUEST_ACCEPTANCE,
    SLICE_SECONDS,
    SLICE_TOKENS,
    START_TIME,
)
from outdraft.observe.page import Page, parse_named, read_models
from outdraft.speculation import OWN_METHODS

TIMES = ("ttft", "tpot", "e2e")
Slices = Mapping[tuple[str, str], tuple[float, float]]

# Counters that mean nothing beside the tokens of servers that do not have them.
_OF_ALL = ("num_requests", "num_first_tokens", "num_steps")
_SHARES = ("kv_cache_usage", "prefix_hit_rate")  # gauges that several servers do not add up to
_SLICE_LABEL = re.compile(r'(side|running|temperature)="([^"]*)"')
TEMPERATURE = "temperature "  # so begins the part of slices that are by temperature, not by load
# Of what a page may make as much as it likes; a history keeps it many times.
_MAX_POSITIONS, _MAX_BANDS, _MAX_SLICES, _MAX_BOUNDS = 64, 16, 96, 256


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters are since the server's start."""

    at: float  # seconds since 1970, by the clock of the reader
    engine: str | None  # a backend's name
    counters: Mapping[str, float]  # the names of observe.names.COUNTERS
    gauges: Mapping[str, float]  # running_requests, waiting_requests, kv_cache_usage, …
    times: Mapping[str, Histogram] = field(default_factory=dict)  # of TIMES
    acceptance: Acceptance | None = None  # None: it does not speculate, or does not say
    started_at: float | None = None
    page: Page = field(default_factory=dict, compare=False)
    model: str | None = None  # its name on the page; several with commas
    version: str | None = None  # on no page: asked now and then
    # Shares accepted of a request's draft tokens, by its band of temperatures.
    acceptance_shares: Mapping[str, Histogram] = field(default_factory=dict)
    # (side, running texts, or temperature …) → tokens and seconds of decoding steps, with and
    # without speculation.
    slices: Slices = field(default_factory=dict)
    is_stopped: bool = False  # it could draft, and an operator turned that off while it runs
    method: str | None = None  # in our words; None: it does not say

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
    gap_s: float = 0.0  # in which nobody looked; counters grew in it too
    acceptance_shares: Mapping[str, Histogram] = field(default_factory=dict)
    slices: Slices = field(default_factory=dict)

    @property
    def seconds(self) -> float:
        """In which somebody looked."""
        return self.end - self.start - self.gap_s

    def gauge(self, name: str) -> float | None:
        """Its mean; None where the server has no such gauge."""
        if name not in self.gauge_seconds or self.seconds <= 0:
            return None
        return self.gauge_seconds[name] / self.seconds

    def per_second(self, name: str) -> float | None:
        """Of a counter, over all the time: it grew in gaps too."""
        seconds = self.end - self.start
        return self.counters[name] / seconds if name in self.counters and seconds > 0 else None

    @property
    def seconds_per_token(self) -> float | None:
        """Of one stream after its first token, over all tokens of requests that ended."""
        tokens = self.counters.get("decode_tokens", 0.0)
        return self.counters.get("decode_seconds", 0.0) / tokens if tokens > 0 else None

    @property
    def acceptance_share(self) -> Histogram | None:
        """Of all temperatures."""
        bands = list(self.acceptance_shares.values())
        return Histogram.total(bands) if bands else None

    @classmethod
    def total(cls, parts: Iterable[Growth]) -> Growth | None:
        """Of one server, in order of time. Holes between the parts are gaps."""
        every = list(parts)
        if not every:
            return None
        total, end, gap = _added(every), every[0].end, every[0].gap_s
        for each in every[1:]:
            gap += each.gap_s + max(each.start - end, 0.0)
            end = max(end, each.end)
        return replace(total, gap_s=gap)

    @classmethod
    def together(cls, parts: Iterable[Growth]) -> Growth | None:
        """Of several servers over about the same time. Requests at a time are those of all of
        them, shares (of KV cache, …) the mean of a server; the least gap counts."""
        every = list(parts)
        if not every:
            return None
        total = _added(every)
        watched = replace(total, gap_s=min(each.gap_s for each in every))
        gauges: dict[str, float] = {}
        for name in total.gauge_seconds:
            means = [mean for each in every if (mean := each.gauge(name)) is not None]
            of_all = sum(means) / (len(means) or 1) if name in _SHARES else sum(means)
            gauges[name] = of_all * watched.seconds
        writing = [each.counters for each in every if "num_tokens" in each.counters]
        lacking = {name for name in _OF_ALL for counters in writing if name not in counters}
        counters = {name: each for name, each in total.counters.items() if name not in lacking}
        return replace(watched, counters=counters, gauge_seconds=gauges)


def _added(every: list[Growth]) -> Growth:
    counters: dict[str, float] = {}
    gauges: dict[str, float] = {}
    times: dict[str, list[Histogram]] = {}
    shares: dict[str, list[Histogram]] = {}
    slices: dict[tuple[str, str], tuple[float, float]] = {}
    for each in every:
        for name, value in each.counters.items():
            counters[name] = counters.get(name, 0.0) + value
        for name, value in each.gauge_seconds.items():
            gauges[name] = gauges.get(name, 0.0) + value
        for into, histograms in ((times, each.times), (shares, each.acceptance_shares)):
            for name, histogram in histograms.items():
                into.setdefault(name, []).append(histogram)
        for part, (tokens, seconds) in each.slices.items():
            known = slices.get(part, (0.0, 0.0))
            slices[part] = known[0] + tokens, known[1] + seconds
    counted = [each.acceptance for each in every if each.acceptance is not None]
    return Growth(
        min(each.start for each in every),
        max(each.end for each in every),
        counters,
        gauges,
        {name: Histogram.total(parts) for name, parts in times.items()},
        Acceptance.total(counted) if counted else None,
        sum(each.num_restarts for each in every),
        sum(each.gap_s for each in every),
        {name: Histogram.total(parts) for name, parts in shares.items()},
        slices,
    )


def reading_of(text: str, at: float, version: str | None = None) -> Reading:
    """From a /metrics page; only what a reading needs is parsed."""
    return read_page(parse_named(text, NAMES), at, version)


def read_page(page: Page, at: float, version: str | None = None) -> Reading:
    engine = engine_of(page)
    family = "vllm" if engine == "outdraft" else engine or ""
    counters = {name: page[key] for name, key in COUNTERS.get(family, {}).items() if key in page}
    if family == "vllm" and "decode_tokens" in counters:
        counters["decode_tokens"] -= page.get("vllm:request_generation_tokens_count", 0.0)
    if engine == "vllm":
        counters |= _one_token_texts(page)
    if family == "llamacpp" and "prefix_queries" in counters:
        counters["prefix_queries"] += counters.get("prefix_hits", 0.0)
    found = {
        name: histogram
        for name, key in HISTOGRAMS.get(family, {}).items()
        if (histogram := Histogram.read(page, key)) is not None
        and len(histogram.bounds) <= _MAX_BOUNDS
    }
    return Reading(
        at,
        engine,
        counters,
        read_gauges(page),
        found,
        _acceptance(page),
        page.get(START_TIME),
        page,
        ",".join(read_models(page)) or None,
        version,
        _shares(page) if engine == "outdraft" else {},
        _slices(page) if engine == "outdraft" else {},
        page.get("outdraft:speculation_stopped", 0.0) > 0,
        _method(page),
    )


def _method(page: Page) -> str | None:
    """One of those that we have: it becomes a part of command lines that are advised, and a server
    may say anything."""
    start = f'{METHOD}{{method="'
    said = (key[len(start) : -2] for key in page if key.startswith(start))
    return next((each for each in said if each in OWN_METHODS), None)


def _one_token_texts(page: Page) -> dict[str, float]:
    """Of which vLLM says that they took 0 s per token; our server does not count them there."""
    for bound in ("1", "1.0"):
        if (number := page.get(f'{ONE_TOKEN}{{le="{bound}"}}')) is not None:
            return {"num_one_token": number}
    return {}


def _acceptance(page: Page) -> Acceptance | None:
    found = read_acceptance(page)
    if found is None or _is_plain_llamacpp(page, found):
        return None
    return replace(
        found,
        num_undrafted=int(page.get("outdraft:rounds_without_draft_total", 0)),
        accepted_per_position=found.accepted_per_position[:_MAX_POSITIONS],
        drafted_per_position=found.drafted_per_position[:_MAX_POSITIONS],
    )


def _is_plain_llamacpp(page: Page, found: Acceptance) -> bool:
    """It has these counters without speculation, too: until it drafted something, it is plain."""
    return not found.num_draft_tokens and engine_of(page) == "llamacpp"


def _shares(page: Page) -> dict[str, Histogram]:
    every = Histogram.read_by(page, REQUEST_ACCEPTANCE, "temperature")
    return dict(sorted(every.items())[:_MAX_BANDS])


def _slices(page: Page) -> dict[tuple[str, str], tuple[float, float]]:
    tokens = _by_side(page, SLICE_TOKENS, "running") | _by_side(page, BAND_TOKENS, "temperature")
    seconds = _by_side(page, SLICE_SECONDS, "running") | _by_side(page, BAND_SECONDS, "temperature")
    both = sorted(tokens.keys() & seconds.keys())[:_MAX_SLICES]
    return {part: (tokens[part], seconds[part]) for part in both}


def _by_side(page: Page, name: str, by: str) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    prefix = TEMPERATURE if by == "temperature" else ""
    for key, value in page.items():
        if key.startswith(f"{name}{{"):
            labels = dict(_SLICE_LABEL.findall(key))
            found[labels.get("side", ""), prefix + labels.get(by, "")] = value
    return found


def is_restarted(before: Reading, after: Reading) -> bool:
    """Another start, a counter that fell, or buckets that changed: a process does none of these.

    decode_tokens is the difference of two counters, which a page does not show at one moment.
    """
    if (after.started_at or 0.0) > (before.started_at or math.inf) + 1:
        return True
    for name, value in before.counters.items():
        now = after.counters.get(name)
        if now is not None and now < value * (1 - 1e-9) and name != "decode_tokens":
            return True
    for earlier, later in (
        (before.times, after.times),
        (before.acceptance_shares, after.acceptance_shares),
    ):
        for name, histogram in earlier.items():
            now_seen = later.get(name)
            if now_seen is not None and (
                now_seen.bounds != histogram.bounds or now_seen.count < histogram.count
            ):
                return True
    known, counted = before.acceptance, after.acceptance
    return known is not None and counted is not None and counted.num_drafts < known.num_drafts


def growth(before: Reading, after: Reading, gap_s: float = 0.0) -> Growth:
    """After a restart everything counts from 0, as does what was not there before.

    `gap_s`: how much of the time nobody looked. What gauges were then is not known.
    """
    is_new = is_restarted(before, after)
    base = Reading(before.at, None, {}, before.gauges) if is_new else before
    seconds = max(after.at - before.at - gap_s, 0.0)
    counters = {name: now - base.counters.get(name, 0.0) for name, now in after.counters.items()}
    times = _histograms_since(base.times, after.times)
    one_token = counters.pop("num_one_token", 0.0)
    if "tpot" in times:
        times["tpot"] = times["tpot"].without_zeros(one_token)
    return Growth(
        before.at,
        after.at,
        counters,
        {
            name: seconds * (value + base.gauges.get(name, value)) / 2
            for name, value in after.gauges.items()
        },
        times,
        _accepted_since(base.acceptance, after.acceptance, after.engine),
        int(is_new),
        gap_s,
        _histograms_since(base.acceptance_shares, after.acceptance_shares),
        {
            part: (
                max(tokens - base.slices.get(part, (0.0, 0.0))[0], 0.0),
                max(seconds - base.slices.get(part, (0.0, 0.0))[1], 0.0),
            )
            for part, (tokens, seconds) in after.slices.items()
        },
    )


def carried(before: Reading, after: Reading) -> Reading:
    """`after`, and what `before` counted of what is not on the later page. Without it a counter
    that is away for one look would be counted twice when it is back. Names stay over a restart."""
    named = replace(
        after,
        engine=after.engine or before.engine,
        model=after.model or before.model,
        version=after.version or before.version,
    )
    if is_restarted(before, after):
        return named
    return replace(
        named,
        counters={**before.counters, **after.counters},
        times={**before.times, **after.times},
        acceptance=before.acceptance if after.acceptance is None else after.acceptance,
        started_at=before.started_at if after.started_at is None else after.started_at,
        acceptance_shares={**before.acceptance_shares, **after.acceptance_shares},
        slices={**before.slices, **after.slices},
    )


def _histograms_since(
    before: Mapping[str, Histogram], after: Mapping[str, Histogram]
) -> dict[str, Histogram]:
    return {name: histogram.since(before.get(name)) for name, histogram in after.items()}


def _accepted_since(
    before: Acceptance | None, after: Acceptance | None, engine: str | None
) -> Acceptance | None:
    if after is None or before is None:
        return after
    num_drafts = after.num_drafts - before.num_drafts
    num_draft_tokens = after.num_draft_tokens - before.num_draft_tokens
    if engine == "sglang":  # it counts rounds, and says how long drafts are now
        num_draft_tokens = round(num_drafts * (after.mean_k or 0.0))
    return Acceptance(
        num_drafts,
        max(num_draft_tokens, 0),
        max(after.num_accepted_tokens - before.num_accepted_tokens, 0),
        max(after.num_undrafted - before.num_undrafted, 0),
        _less(after.accepted_per_position, before.accepted_per_position),
        _less(after.drafted_per_position, before.drafted_per_position),
    )


def _less(after: list[int], before: list[int]) -> list[int]:
    return [
        max(count - (before[at] if at < len(before) else 0), 0) for at, count in enumerate(after)
    ]


def to_json(reading: Reading) -> dict[str, Any]:
    """A line of a recorded history: the page itself, from which the rest follows, and what is on no
    page of some engines."""
    asked = {"version": reading.version, "model": reading.model}
    said = {name: value for name, value in asked.items() if value is not None}
    return {"at": reading.at, "page": reading.page, **said}


def from_json(data: Mapping[str, Any]) -> Reading:
    page = {str(key): float(value) for key, value in data["page"].items()}
    reading = read_page(page, data["at"], data.get("version"))
    return replace(reading, model=data.get("model") or reading.model)

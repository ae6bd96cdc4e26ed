"""Readings from a Prometheus server that scrapes the replicas: what is now, and what was.

Of now: the last scrape of each instance, at the time of that scrape. Of the past: `query_range`, in
steps as coarse as a history keeps them. A version is on no page, so none is known.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import aiohttp

from outdraft.errors import BackendError
from outdraft.observe.fetch import fetch_bytes, redacted
from outdraft.observe.names import NAMES, START_TIME
from outdraft.observe.page import page_of_samples
from outdraft.observe.reading import Reading, read_page
from outdraft.watch.history import FINE_S, MINUTES_S
from outdraft.watch.replicas import MAX_REPLICAS
from outdraft.watch.scraper import Unreadable

_LIMIT_S = 30.0
_MAX_BYTES = 64 << 20
_CHUNK_SAMPLES = 200_000  # asked for at a time: about 5 MB
_MAX_POINTS = 10_000  # Prometheus refuses more than 11,000 of a series
_LOOKBACK_S = 150.0  # more than two scrapes of any usual interval
_KNOWN_S = 600.0  # a replica that is gone is named for so long
_GAP_INTERVALS = 2.5
_NO_NEWER = "Prometheus has no newer samples of it"
_LEAST_STEP_S = 15.0
_ERROR_STATUSES = (400, 422, 503)  # with a reason in JSON
# Every process of a cluster has a start time; that of a replica is not needed to see a restart.
_METRICS = "|".join(sorted(NAMES - {START_TIME}))

Samples = list[tuple[float, float]]  # (when, value)


@dataclass(frozen=True, slots=True)
class _Series:
    instance: str
    job: str
    text: str  # name{label="value",…
    samples: Samples


class PrometheusSource:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        selector: str = "",
        api_key: str | None = None,
        interval_s: float = 5.0,
    ) -> None:
        """`selector`: labels that choose the replicas, as in a query: `job="vllm"`."""
        self._session = session
        self._url = url.partition("?")[0].rstrip("/").removesuffix("/api/v1")
        self._api_key = api_key
        self._interval_s = interval_s
        chosen = selector.strip().removeprefix("{").removesuffix("}").strip(" ,")
        self._query = f'{{__name__=~"{_METRICS}"{"," if chosen else ""}{chosen}}}'
        self.apart_s = interval_s  # between two scrapes by Prometheus; for gaps in histories
        self._known: dict[str, Reading] = {}
        self._num_series = 1_000

    async def latest(self, now: float) -> dict[str, Reading | Unreadable]:
        """The last scrape of each instance: the same again where there is no newer one.
        BackendError where Prometheus itself does not answer."""
        query = f"{self._query}[{_LOOKBACK_S:g}s]"
        every = await self._ask("query", {"query": query, "time": _seconds(now)})
        self._num_series = max(len(every), 1)
        replicas = _by_replica(every)
        self.apart_s = max(_usual_interval(replicas), self._interval_s)
        for name, series in replicas.items():
            last = max(each.samples[-1][0] for each in series)
            there = (each for each in series if each.samples[-1][0] == last)
            page = page_of_samples((each.text, each.samples[-1][1]) for each in there)
            self._known[name] = read_page(page, last)
        late = now - max(_GAP_INTERVALS * self.apart_s, _LEAST_STEP_S)
        found: dict[str, Reading | Unreadable] = {}
        for name, reading in self._known.items():
            is_late = reading.at < late
            found[name] = Unreadable(_NO_NEWER, reading.at) if is_late else reading
        self._known = {name: each for name, each in self._known.items() if each.at > now - _KNOWN_S}
        return found

    async def past(
        self, since_s: float, now: float
    ) -> AsyncIterator[tuple[float, dict[str, Reading]]]:
        """In order of time: how far apart looks are there, and a look at all replicas."""
        apart_s = 0.0  # the first look of a stretch is as far from the one before as that is coarse
        for start, end, step_s in _stretches(since_s, now, self._interval_s):
            points = max(min(_CHUNK_SAMPLES // self._num_series, _MAX_POINTS), 2)
            while start <= end:
                stop = min(start + (points - 1) * step_s, end)
                every = await self._ask(
                    "query_range",
                    {
                        "query": self._query,
                        "start": _seconds(start),
                        "end": _seconds(stop),
                        "step": _seconds(step_s),
                    },
                )
                self._num_series = max(len(every), 1)
                for look in _looks(every):
                    yield max(apart_s, step_s), look
                    apart_s = 0.0
                start = stop + step_s
            apart_s = step_s

    async def _ask(self, what: str, form: Mapping[str, str]) -> list[_Series]:
        try:
            body = await fetch_bytes(
                self._session,
                f"{self._url}/api/v1/{what}",
                _LIMIT_S,
                api_key=self._api_key,
                max_bytes=_MAX_BYTES,
                data={**form, "timeout": f"{_LIMIT_S:g}s"},
                statuses=(200, *_ERROR_STATUSES),
            )
            return await asyncio.to_thread(_series, body)
        except BackendError as failure:
            raise BackendError(f"Prometheus at {redacted(self._url)}: {failure}") from None


def _stretches(
    since_s: float, now: float, interval_s: float
) -> Iterator[tuple[float, float, float]]:
    """(start, end, step): coarse where a history is coarse. Ends where the next one begins."""
    fine_s = max(interval_s, _LEAST_STEP_S)
    edges = ((math.inf, MINUTES_S, 600.0), (MINUTES_S, FINE_S, 60.0), (FINE_S, 0.0, fine_s))
    for far_s, near_s, step_s in edges:
        start, end = now - min(since_s, far_s), now - near_s
        if start >= end:
            continue
        first = math.ceil(start / step_s) * step_s
        last = end if near_s == 0 else end - 1e-3
        yield first, last, step_s


def _series(body: bytes) -> list[_Series]:
    try:
        answer: Any = json.loads(body)
    except (ValueError, RecursionError):
        raise BackendError("its answer is no JSON; is it a Prometheus server?") from None
    if not isinstance(answer, Mapping) or answer.get("status") != "success":
        reason = answer.get("error") if isinstance(answer, Mapping) else None
        words = " ".join(str(reason or "its answer is not that of Prometheus").split())
        raise BackendError(words[:300])
    try:
        found = [_one(each) for each in answer["data"]["result"]]
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise BackendError("its answer is not that of Prometheus") from None
    return [each for each in found if each.samples]


def _one(result: Mapping[str, Any]) -> _Series:
    labels = dict(result["metric"])
    name, instance, job = (str(labels.pop(key, "")) for key in ("__name__", "instance", "job"))
    escaped = (
        (key, str(value).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for key, value in sorted(labels.items())
    )
    text = ",".join(f'{key}="{value}"' for key, value in escaped)
    samples = [(float(at), float(value)) for at, value in result["values"]]
    return _Series(instance, job, f"{name}{{{text}" if text else name, samples)


def _by_replica(every: list[_Series]) -> dict[str, list[_Series]]:
    """By instance, with the job where two jobs have the same."""
    found: dict[tuple[str, str], list[_Series]] = {}
    for each in every:
        found.setdefault((each.instance, each.job), []).append(each)
    instances = [instance for instance, _ in found]
    return {
        instance if instances.count(instance) == 1 else f"{job}/{instance}": series
        for (instance, job), series in sorted(found.items())[:MAX_REPLICAS]
    }


def _usual_interval(replicas: Mapping[str, list[_Series]]) -> float:
    """Between scrapes; 0 where no replica was scraped twice."""
    found: list[float] = []
    for series in replicas.values():
        times = sorted({at for at, _ in max(series, key=lambda each: len(each.samples)).samples})
        found += [after - before for before, after in pairwise(times)]
    return median(found) if found else 0.0


def _looks(every: list[_Series]) -> Iterator[dict[str, Reading]]:
    """Series → readings of all replicas at each moment."""
    moments: dict[float, dict[str, list[tuple[str, float]]]] = {}
    for name, series in _by_replica(every).items():
        for each in series:
            for at, value in each.samples:
                moments.setdefault(at, {}).setdefault(name, []).append((each.text, value))
    for at in sorted(moments):
        pages = moments.pop(at)
        yield {name: read_page(page_of_samples(samples), at) for name, samples in pages.items()}


def _seconds(value: float) -> str:
    return f"{value:.3f}"

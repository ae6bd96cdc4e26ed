"""Where a watch's readings come from: the servers themselves, or a Prometheus that asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import aiohttp

from outdraft.errors import BackendError
from outdraft.observe.reading import Reading
from outdraft.watch.asking import Asking
from outdraft.watch.prometheus import PrometheusSource
from outdraft.watch.replicas import Replicas
from outdraft.watch.scraper import Scraper, Unreadable
from outdraft.watch.settings import WatchSettings
from outdraft.watch.watch import Watch

_FIND_AGAIN_S = 30.0  # files and names are read again so often

Looks = Mapping[str, Reading | Unreadable]
Say = Callable[[str], None]


class Readings(Protocol):
    @property
    def interval_s(self) -> float: ...  # between two readings of a server

    async def look(self, now: float) -> Looks: ...

    def url(self, replica: str) -> str | None: ...


class Servers:
    """Asked one by one. `say` is told what is wrong with a file or a name."""

    def __init__(self, session: aiohttp.ClientSession, settings: WatchSettings, say: Say) -> None:
        self._replicas = Replicas(settings.urls, settings.targets)
        asking = Asking(session, settings.api_key)
        self._scraper = Scraper(asking.fetch, settings.interval_s)
        self._say = say
        self._found_at = float("-inf")
        self._problems: tuple[str, ...] = ()
        self._urls: dict[str, str] = {}
        self.interval_s = settings.interval_s

    async def look(self, now: float) -> Looks:
        if now - self._found_at >= _FIND_AGAIN_S:
            self._found = await self._replicas.find()
            self._found_at = now
            for problem in self._found.problems:
                if problem not in self._problems:
                    self._say(problem)
            self._problems = self._found.problems
            self._urls = {each.name: each.url for each in self._found.replicas}
        return await self._scraper.scrape(self._found.replicas)

    def url(self, replica: str) -> str | None:
        return self._urls.get(replica)


class Scraped:
    """By Prometheus. Where it does not answer for a while, all replicas are unreadable."""

    def __init__(self, source: PrometheusSource, say: Say) -> None:
        self._source = source
        self._say = say
        self._last: Looks = {}
        self._problem = ""

    @property
    def interval_s(self) -> float:
        return self._source.apart_s

    async def start(self, now: float) -> None:
        """BackendError where it does not answer at all."""
        self._last = await self._source.latest(now)

    async def remember(self, watch: Watch, since_s: float, now: float) -> None:
        """Puts the past into the watch's histories, after what an earlier watch left there."""
        async for apart_s, found in self._source.past(since_s, now):
            at = max((reading.at for reading in found.values()), default=now)
            unseen = {
                name: each for name, each in found.items() if watch.histories.is_newer(name, each)
            }
            watch.histories.update(unseen, at, apart_s)

    async def look(self, now: float) -> Looks:
        try:
            self._last = await self._source.latest(now)
            self._problem = ""
        except BackendError as failure:
            if str(failure) != self._problem:
                self._problem = str(failure)
                self._say(self._problem)
            return {name: Unreadable(str(failure), now) for name in self._last}
        return self._last

    def url(self, replica: str) -> str | None:
        return None  # it knows instances, not how they are reached

"""Asks a replica over HTTP: for its metrics each time, for version and model now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import time

import aiohttp

from outdraft.observe.counters import read_acceptance
from outdraft.observe.fetch import About, fetch_about, fetch_reading
from outdraft.observe.reading import Reading, is_restarted
from outdraft.watch.replicas import Replica

_VERSION_LASTS_S = 600.0
_MAX_KNOWN = 4_000  # replicas that come and go


@dataclass(slots=True)
class _Known:
    last: Reading
    about: About
    asked_at: float


class Asking:
    """What a `Scraper` fetches with. A version is asked for at the first look, after a restart,
    when the model is another one, and every ten minutes."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        api_key: str | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        self._session = session
        self._api_key = api_key
        self._clock = clock
        self._known: dict[str, _Known] = {}

    async def fetch(self, replica: Replica, limit_s: float) -> Reading:
        """A version that takes too long is asked for another time: the metrics are not lost."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        reading = await fetch_reading(
            self._session, replica.url, limit_s, api_key=self._api_key, clock=self._clock
        )
        known = self._known.pop(replica.url, None)
        if known is None or self._is_stale(known, reading):
            left_s = (limit_s - (loop.time() - start)) / 2
            about = await fetch_about(
                self._session, replica.url, reading.engine, left_s, api_key=self._api_key
            )
            earlier = known.about if known else About()
            about = About(
                about.version or earlier.version,
                about.model or earlier.model,
                earlier.speculates if about.speculates is None else about.speculates,
            )
            known = _Known(reading, about, reading.at)
        known.last = replace(reading, page={})
        while len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[replica.url] = known
        about = known.about
        accepted = reading.acceptance
        if accepted is None and about.speculates:
            # Counters that are all 0 do not tell this from no speculation.
            accepted = read_acceptance(reading.page)
        model = reading.model or about.model
        return replace(reading, version=about.version, model=model, acceptance=accepted)

    @staticmethod
    def _is_stale(known: _Known, reading: Reading) -> bool:
        return (
            reading.at - known.asked_at > _VERSION_LASTS_S
            or reading.model != known.last.model
            or is_restarted(known.last, reading)
        )

"""Asks all replicas at once, each in its own time: a bad one costs the others nothing."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from outdraft.errors import OutdraftError
from outdraft.observe.reading import Reading
from outdraft.watch.replicas import Replica

# Of an interval: over which the questions are spread, and how long an answer may take. What is
# left is for what follows.
_SPREAD, _PATIENCE = 0.25, 0.5
_MAX_PATIENCE_S = 10.0
_MAX_PAUSE_S = 60.0  # between two questions to one that does not answer

Fetch = Callable[[Replica, float], Awaitable[Reading]]  # within so many seconds


@dataclass(frozen=True, slots=True)
class Unreadable:
    reason: str  # one line, without the URL
    at: float


@dataclass(slots=True)
class _Trouble:
    failure: Unreadable
    num_failures: int = 0
    ask_again_at: float = field(default=0.0)


class Scraper:
    """The clock, the pauses and the questions are passed in: a replay has its own."""

    def __init__(
        self,
        fetch: Fetch,
        interval_s: float,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._fetch = fetch
        self._interval_s = interval_s
        self._clock = clock
        self._sleep = sleep
        self._troubles: dict[str, _Trouble] = {}

    async def scrape(self, replicas: Sequence[Replica]) -> dict[str, Reading | Unreadable]:
        """One look at each, or why there is none. One that failed is left alone for a while and
        keeps its last failure. Takes three quarters of an interval at most."""
        names = {replica.name for replica in replicas}
        self._troubles = {name: each for name, each in self._troubles.items() if name in names}
        now = self._clock()
        due = [replica for replica in replicas if self._is_due(replica.name, now)]
        answers = await asyncio.gather(*(self._ask(replica) for replica in due))
        found = dict(zip((replica.name for replica in due), answers, strict=True))
        return {
            replica.name: found.get(replica.name) or self._troubles[replica.name].failure
            for replica in replicas
        }

    def _is_due(self, name: str, now: float) -> bool:
        trouble = self._troubles.get(name)
        # Half an interval early is better than a whole one late.
        return trouble is None or now >= trouble.ask_again_at - self._interval_s / 2

    async def _ask(self, replica: Replica) -> Reading | Unreadable:
        """At the same moment of every interval, which is another one for each replica."""
        await self._sleep(_phase(replica.name) * _SPREAD * self._interval_s)
        patience_s = min(_PATIENCE * self._interval_s, _MAX_PATIENCE_S)
        try:
            async with asyncio.timeout(patience_s):
                reading = await self._fetch(replica, patience_s)
        except OutdraftError as failure:
            return self._failed(replica.name, str(failure))
        except TimeoutError:
            return self._failed(replica.name, f"no whole answer within {patience_s:g} s")
        except Exception as failure:  # whatever it answered must not end the watch of the others
            what = type(failure).__name__
            return self._failed(replica.name, f"its answer cannot be read ({what})")
        self._troubles.pop(replica.name, None)
        return reading

    def _failed(self, name: str, reason: str) -> Unreadable:
        now = self._clock()
        failure = Unreadable(reason, now)
        known = self._troubles.get(name)
        num_failures = 1 + (known.num_failures if known else 0)
        pause_s = self._interval_s * 2.0 ** min(num_failures - 1, 20)
        pause_s = min(pause_s, max(_MAX_PAUSE_S, self._interval_s))
        self._troubles[name] = _Trouble(failure, num_failures, now + pause_s)
        return failure


def _phase(name: str) -> float:
    """From 0 to 1, always the same for a name."""
    digest = hashlib.blake2b(name.encode(), digest_size=4).digest()
    return int.from_bytes(digest) / (1 << 32)

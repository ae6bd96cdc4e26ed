"""Posts events to an address: signed, tried again with growing pauses, in the background.

The receiver can check who sent it, and that it is not an old one sent again:

    expected = "sha256=" + hmac_sha256(secret, timestamp + "." + body)
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections import deque
from collections.abc import Callable

import aiohttp
from yarl import URL

from outdraft.observe.fetch import open_session
from outdraft.watch.events import Told

TIMESTAMP, SIGNATURE = "X-Outdraft-Timestamp", "X-Outdraft-Signature"
_MAX_WAITING = 1_000
_LIMIT_S = 10.0
_PAUSES_S = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 600.0)
_AGAIN = frozenset({408, 425, 429, *range(500, 600)})


def signature(secret: str, timestamp: str, body: bytes) -> str:
    signed = timestamp.encode() + b"." + body
    return "sha256=" + hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


class Webhook:
    """`post` never waits. `run` sends, one after the other, until it is cancelled."""

    def __init__(
        self,
        url: str,
        secret: str | None,
        *,
        limit_s: float = _LIMIT_S,
        pauses_s: tuple[float, ...] = _PAUSES_S,
        max_waiting: int = _MAX_WAITING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._url, self._secret, self._clock = URL(url), secret, clock
        self._limit_s, self._pauses_s, self._max_waiting = limit_s, pauses_s, max_waiting
        self._waiting: deque[Told] = deque()
        self._has_some = asyncio.Event()
        # Many receivers (Slack, Discord, Teams) have their secret in the path: nothing but this is
        # shown, anywhere.
        self.name = str(self._url.origin())
        self.delivered = 0  # the number of the last event that was taken, or given up
        self.num_lost = 0
        self.problem = ""  # of the last try; empty: it was taken

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def post(self, event: Told) -> None:
        """Where too many wait, the oldest is lost."""
        self._waiting.append(event)
        while len(self._waiting) > self._max_waiting:
            self._waiting.popleft()
            self.num_lost += 1
        self._has_some.set()

    async def run(self) -> None:
        async with open_session() as session:
            while True:
                await self._has_some.wait()
                while self._waiting:
                    await self._deliver(session, self._waiting[0])
                self._has_some.clear()

    async def _deliver(self, session: aiohttp.ClientSession, event: Told) -> None:
        for pause_s in (*self._pauses_s, None):
            self.problem, is_final = await self._try(session, event)
            if is_final or pause_s is None:
                break
            await asyncio.sleep(pause_s)
            if not self._waiting or self._waiting[0] is not event:
                return  # it was lost meanwhile: too many wait
        self.num_lost += bool(self.problem)
        self.delivered = event.number
        if self._waiting and self._waiting[0] is event:
            self._waiting.popleft()

    async def _try(self, session: aiohttp.ClientSession, event: Told) -> tuple[str, bool]:
        """What went wrong, and whether there is no use in trying again."""
        body = json.dumps(event.to_json()).encode()
        timestamp = f"{self._clock():.0f}"
        headers = {"Content-Type": "application/json", TIMESTAMP: timestamp}
        if self._secret is not None:
            headers[SIGNATURE] = signature(self._secret, timestamp, body)
        address = self._url
        if address.user is not None or address.password is not None:
            words = f"{address.user or ''}:{address.password or ''}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(words).decode()}"
            address = address.with_user(None)
        limits = aiohttp.ClientTimeout(total=self._limit_s)
        try:
            async with session.post(
                address, data=body, headers=headers, allow_redirects=False, timeout=limits
            ) as answer:
                status = answer.status
                answer.close()  # what it says beside is not read, however long it is
        except TimeoutError:
            return f"no answer within {self._limit_s:g} s", False
        except (aiohttp.ClientError, OSError, ValueError) as failure:
            return f"it could not be reached ({type(failure).__name__})", False
        if 200 <= status < 300:
            return "", True
        if 300 <= status < 400:
            return f"it redirects (http {status}), which is not followed", True
        return f"http {status}", status not in _AGAIN

"""A server that writes slower the more requests it runs, on a clock of its own.

Stands in for `run_load`. Every sequence writes a token in `seconds(n)` while n of them run, so what
is true of a server under a load is known: n / seconds(n) tokens a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.loadgen.load import LoadRun, Sink
from outdraft.records import Record

Seconds = Callable[[int], float]


class Batching:
    def __init__(self, servers: Mapping[str, Seconds]) -> None:
        self._servers = servers
        self._now = 1.0
        self.sizes: list[int] = []  # of blocks, with all that is sent along with them

    def __call__(
        self,
        endpoint: Endpoint,
        requests: Sequence[Request],
        *,
        concurrency: int = 1,
        sink: Sink | None = None,
        **_: Any,
    ) -> LoadRun:
        seconds, waiting = self._servers[endpoint.url], list(requests)[::-1]
        self.sizes.append(len(requests))
        num_planned = sum(not each.is_filler for each in requests)
        running: list[_Running] = []
        records: list[Record] = []
        while len(records) < num_planned:
            while waiting and len(running) < concurrency:
                running.append(_Running(waiting.pop(), self._now))
            pace = seconds(len(running))
            step = min(each.left for each in running)  # to the next first token, or end
            self._now += step * pace
            for each in running:
                each.advance(step, self._now)
            for ended in [each for each in running if each.is_ended]:
                running.remove(ended)
                if not ended.request.is_filler:
                    records.append(ended.record(self._now))
                    if sink is not None:
                        sink(records[-1])
        self._now += 0.001
        return LoadRun(tuple(records), num_planned)


class _Running:
    def __init__(self, request: Request, now: float) -> None:
        self.request, self._due = request, now
        self._first: float | None = None
        self._tokens_left = float(request.planned.max_tokens)

    @property
    def left(self) -> float:
        """Tokens to the next moment that counts."""
        return 1.0 if self._first is None else self._tokens_left

    @property
    def is_ended(self) -> bool:
        return self._tokens_left < 1e-9

    def advance(self, tokens: float, now: float) -> None:
        self._tokens_left -= tokens
        if self._first is None and self._tokens_left <= self.request.planned.max_tokens - 1 + 1e-9:
            self._first = now

    def record(self, now: float) -> Record:
        due, first, last = (round(each * 1e9) for each in (self._due, self._first or now, now))
        num = self.request.planned.max_tokens
        return self.request.record(
            due, sent_ns=due, first_ns=first, last_ns=last, completion_tokens=num, text="same"
        )

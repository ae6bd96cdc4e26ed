"""Loads that are played, not waited for: the fake server's scripts on a clock of their own.

What a real run does to the wire is left out, so hundreds of pairs cost nothing and every run is
the same. `benchmarks` and a few tests over HTTP have the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from outdraft.loadgen.endpoint import Endpoint, Request
from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import LoadRun, Sink
from outdraft.records import Record
from outdraft.testing.fake_script import Script, ScriptedRequest

BASELINE, CANDIDATE = Endpoint("http://127.0.0.1:1"), Endpoint("http://127.0.0.1:2")


class Simulated:
    """Stands in for `run_load`, with one script for each URL.

    `failing` are the numbers of requests (of both servers together, from 0, without leads) that
    are answered with a 503, as are leads that come right before one; the load is stopped, as by
    Control-C, before request number `stops_at`.
    Fillers would be sent when nothing waits any more, and change nothing.
    """

    def __init__(
        self,
        scripts: Mapping[str, Script],
        *,
        failing: Collection[int] = (),
        stops_at: int | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._scripts = dict(scripts)
        self._counts = dict.fromkeys(self._scripts, 0)
        self._failing = failing
        self._stops_at = stops_at
        self._pulses = () if pulse is None else (pulse,)
        self._now = 10**9
        self._number = 0
        self.requests: list[Request] = []

    def __call__(
        self,
        endpoint: Endpoint,
        requests: Sequence[Request],
        *,
        concurrency: int | None = None,
        sink: Sink | None = None,
        **_: Any,
    ) -> LoadRun:
        start = self._now
        slots = [start] * (concurrency or 1)
        records = []
        recorded = [each for each in requests if not each.is_filler]
        for request in recorded:
            if self._number == self._stops_at:
                break
            due = heapq.heappop(slots)
            record = self._answered(endpoint.url, request, due, len(slots) + 1)
            heapq.heappush(slots, record.last_ns or due)
            self._number += request.index >= 0
            self.requests.append(request)
            records.append(record)
            if sink is not None:
                sink(record)
        self._now = max(slots) + 10**6
        return LoadRun(tuple(records), len(recorded), start, self._pulses)

    def _answered(self, url: str, request: Request, due: int, running: int) -> Record:
        if self._number in self._failing:
            return request.record(due, sent_ns=due, error="http 503: try again later")
        planned = request.planned
        scripted = ScriptedRequest(
            prompt="\n".join(each.content for each in planned.prompt.messages),
            temperature=planned.temperature,
            max_tokens=planned.max_tokens,
            seed=planned.seed,
            ignore_eos=True,
            number=self._counts[url],
            num_running=running,
        )
        self._counts[url] += 1
        answer = self._scripts[url].play(scripted)
        chunks = tuple(due + round(at * 1e9) for at in answer.at_s)
        return request.record(
            due,
            sent_ns=due,
            first_ns=chunks[0],
            last_ns=chunks[-1],
            chunk_ns=chunks,
            completion_tokens=answer.num_tokens,
            finish_reason=answer.finish_reason,
            acceptance=answer.acceptance if self._scripts[url].k else None,
            text="".join(answer.words),
        )

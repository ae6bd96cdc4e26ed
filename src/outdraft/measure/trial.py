"""One server under one load: warm-up, load, records, what its counters did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from outdraft.loadgen.endpoint import Endpoint
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import Sink
from outdraft.loadgen.quality import Quality, judge
from outdraft.loadgen.request import requests_of
from outdraft.measure.environment import fingerprint
from outdraft.measure.server import metrics_of, version_of
from outdraft.measure.watching import watching
from outdraft.metrics_page import difference
from outdraft.records import Record, Trial
from outdraft.workload.prompt import Planned


def run_trial(
    endpoint: Endpoint,
    plan: Sequence[Planned],
    *,
    arm: str,
    load: Mapping[str, Any],
    concurrency: int | None,
    warmup: Sequence[Planned] = (),
    processes: int = 1,
    sink: Sink | None = None,
) -> tuple[Trial, Quality]:
    """`concurrency` None: the plan's offsets say when. Warm-up requests are recorded as such."""
    warmed: tuple[Record, ...] = ()
    if warmup:
        undated = [replace(each, offset_ns=None) for each in warmup]
        requests = requests_of(undated, arm=arm, block=-1, is_warmup=True)
        first = run_load(endpoint, requests, concurrency=concurrency or 4, sink=sink)
        warmed = first.records
        if first.is_stopped:
            plan = ()
    before = metrics_of(endpoint)
    started_at = datetime.now(UTC).isoformat()
    with watching(endpoint) as seen:
        run = run_load(
            endpoint,
            requests_of(plan, arm=arm),
            concurrency=concurrency,
            processes=processes,
            sink=sink,
        )
    after = metrics_of(endpoint)
    quality = judge(run)
    trial = Trial(
        arm=arm,
        url=endpoint.url,
        load=load,
        records=(*warmed, *run.records),
        started_at=started_at,
        environment=fingerprint() | {"server_version": version_of(endpoint)},
        server_metrics=difference(after, before) | seen.to_metrics(),
        is_valid=quality.is_valid,
        problems=quality.problems,
    )
    return trial, quality

"""One server under one load: warm-up, load, records, and the server's counters meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import Sink
from outdraft.loadgen.quality import LoadQuality, assess_load
from outdraft.measure.block_size import answer_seconds
from outdraft.measure.gauges import (
    POLL_S,
    counted_time,
    means_and_peaks,
    poll_seconds,
    polled_gauges,
    while_counting,
)
from outdraft.measure.gpus import polled_gpus
from outdraft.measure.machine import describe_client
from outdraft.measure.memory import REMEMBERED, forgets, repeats_note
from outdraft.measure.plateau import surround, surround_in_time
from outdraft.observe import RemoteServer, page_difference
from outdraft.records import Record, Trial
from outdraft.workload.prompt import Planned


def run_trial(
    endpoint: Endpoint,
    plan: Sequence[Planned],
    *,
    arm: str,
    load: Mapping[str, Any],
    concurrency: int | None,
    duration_s: float | None = None,
    warmup: Sequence[Planned] = (),
    spare: Sequence[Planned] = (),
    processes: int = 1,
    keep_memory: bool = False,
    gpu_metrics: str | None = None,
    sink: Sink | None = None,
) -> tuple[Trial, LoadQuality]:
    """Without `concurrency`, requests are sent at the offsets of the plan. `duration_s`: those that
    count are sent for so long; with so many at a time. `spare`: for requests
    before and after those that count, so that these meet the whole load. With `keep_memory`, what a
    server remembers of the warm-up may help. `gpu_metrics`: a page about the server's GPUs."""
    warmup_records: tuple[Record, ...] = ()
    is_stopped = False
    if warmup:
        undated = [replace(each, offset_ns=None) for each in warmup]
        requests = make_requests(undated, arm=arm, block=-1, is_warmup=True)
        first = run_load(endpoint, requests, concurrency=concurrency or 4, sink=sink)
        warmup_records = first.records
        if is_stopped := first.is_stopped:
            plan = ()
    forgetful = () if keep_memory or not forgets(endpoint.server) else (arm,)
    before = endpoint.server.metrics()
    started_at = datetime.now(UTC).isoformat()
    requests = make_requests(plan, arm=arm)
    if spare and concurrency is not None:
        requests = surround(requests, spare, concurrency)
    elif spare:
        requests = surround_in_time(requests, spare, _settling_ns(plan, warmup_records))
    every_s = _poll_seconds(plan, warmup_records, concurrency, duration_s)
    with (
        polled_gauges(endpoint.server, every_s) as samples,
        polled_gpus(endpoint.url, gpu_metrics) as of_gpus,
    ):
        run = run_load(
            endpoint,
            requests,
            concurrency=concurrency,
            duration_ns=None if duration_s is None else round(duration_s * 1e9),
            processes=processes,
            sink=sink,
        )
    metrics = page_difference(endpoint.server.metrics(), before)
    said = [*samples, *of_gpus]
    metrics |= means_and_peaks(while_counting(said, run.records), counted_time(run.records))
    quality = assess_load(run)
    quality = replace(quality, is_stopped=is_stopped or quality.is_stopped)
    if (
        note := REMEMBERED
        if keep_memory
        else repeats_note((*warmup_records, *run.records), forgetful)
    ):
        quality = replace(quality, problems=(*quality.problems, note))
    trial = Trial(
        arm=arm,
        url=endpoint.url,
        load=load,
        records=(*warmup_records, *run.records),
        started_at=started_at,
        environment=describe_client() | _describe_server(endpoint.server),
        server_metrics=metrics,
        is_valid=quality.is_valid,
        problems=quality.problems,
    )
    return trial, quality


def _poll_seconds(
    plan: Sequence[Planned],
    warmup: Sequence[Record],
    concurrency: int | None,
    duration_s: float | None,
) -> float:
    """By how long the load will take, as far as that is known before."""
    if duration_s is not None:
        return poll_seconds(duration_s)
    if concurrency is None:
        return poll_seconds(max((each.offset_ns or 0 for each in plan), default=0) / 1e9)
    answer_s = answer_seconds(warmup)
    return POLL_S if answer_s is None else poll_seconds(len(plan) * answer_s / concurrency)


def _settling_ns(plan: Sequence[Planned], warmup: Sequence[Record]) -> int:
    """How long requests come by the clock before they count: until those that came first have
    ended, so that as many run as will, and a tenth of the time at least. An answer may take twice
    as long as in the warm-up, which is short and sends few at a time."""
    offsets = [each.offset_ns or 0 for each in plan]
    tenth = (max(offsets) - min(offsets)) // 10 if offsets else 0
    return max(tenth, *(2 * (each.e2e_ns or 0) for each in warmup), 0)


def _describe_server(server: RemoteServer) -> dict[str, Any]:
    """The engine that was measured, as far as it says so."""
    try:
        identity = server.identify()
    except BackendError:  # it ended during the load
        return {"server_engine": None, "server_version": None}
    return {
        "server_engine": identity.engine,
        "server_version": identity.version,
        "server_method": server.method(),
    }

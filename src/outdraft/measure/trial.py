"""One server under one load: warm-up, load, records, and the server's counters meanwhile."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from outdraft.errors import BackendError
from outdraft.loadgen.endpoint import Endpoint, make_requests
from outdraft.loadgen.fleet import run_load
from outdraft.loadgen.load import Sink
from outdraft.loadgen.quality import LoadQuality, assess_load
from outdraft.measure.machine import describe_client
from outdraft.measure.memory import REMEMBERED, forgets, repeats_note
from outdraft.observe import RemoteServer, page_difference, read_gauges
from outdraft.records import Record, Trial
from outdraft.workload.prompt import Planned

_FIRST_POLL_S, _POLL_S = 0.05, 1.0  # frequent at first, so that a short load is seen too


def run_trial(
    endpoint: Endpoint,
    plan: Sequence[Planned],
    *,
    arm: str,
    load: Mapping[str, Any],
    concurrency: int | None,
    warmup: Sequence[Planned] = (),
    processes: int = 1,
    keep_memory: bool = False,
    sink: Sink | None = None,
) -> tuple[Trial, LoadQuality]:
    """Without `concurrency`, requests are sent at the offsets of the plan. With `keep_memory`, what
    a server remembers of the warm-up may help."""
    warmup_records: tuple[Record, ...] = ()
    if warmup:
        undated = [replace(each, offset_ns=None) for each in warmup]
        requests = make_requests(undated, arm=arm, block=-1, is_warmup=True)
        first = run_load(endpoint, requests, concurrency=concurrency or 4, sink=sink)
        warmup_records = first.records
        if first.is_stopped:
            plan = ()
    forgetful = () if keep_memory or not forgets(endpoint.server) else (arm,)
    before = endpoint.server.metrics()
    started_at = datetime.now(UTC).isoformat()
    with _polled_gauges(endpoint.server) as gauges:
        run = run_load(
            endpoint,
            make_requests(plan, arm=arm),
            concurrency=concurrency,
            processes=processes,
            sink=sink,
        )
    metrics = page_difference(endpoint.server.metrics(), before)
    for name, values in gauges.items():
        metrics[f"{name}_max"] = max(values)
        metrics[f"{name}_mean"] = sum(values) / len(values)
    quality = assess_load(run)
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


def _describe_server(server: RemoteServer) -> dict[str, Any]:
    """The engine that was measured, as far as it says so."""
    try:
        identity = server.identify()
    except BackendError:  # it ended during the load
        return {"server_engine": None, "server_version": None}
    return {"server_engine": identity.engine, "server_version": identity.version}


@contextmanager
def _polled_gauges(server: RemoteServer) -> Iterator[dict[str, list[float]]]:
    """KV cache usage and running requests while a load runs, polled in a thread: gauges say nothing
    once the load is over. Polling ends at once if the server has none of them."""
    values: dict[str, list[float]] = {}
    is_over = threading.Event()

    def poll() -> None:
        pause_s = _FIRST_POLL_S
        while not is_over.wait(pause_s):
            pause_s = min(2 * pause_s, _POLL_S)
            gauges = read_gauges(server.metrics())
            if not gauges:
                return
            for name, value in gauges.items():
                values.setdefault(name, []).append(value)

    thread = threading.Thread(target=poll, name="gauges", daemon=True)
    thread.start()
    try:
        yield values
    finally:
        is_over.set()
        thread.join()

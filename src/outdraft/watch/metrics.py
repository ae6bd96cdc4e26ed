"""The watch's own /metrics page, in Prometheus' text form. Its metrics are declared in
`metrics.toml`, from which `boards` makes alert rules and dashboards, too. Pure."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources

from outdraft.watch.findings import FLEET, Action, Benefit
from outdraft.watch.snapshot import Quantiles, ReplicaState, ReplicaView, Snapshot

_STATES = "outdraft_watch_replica"
ALL = "all"  # the label of all replicas together: Prometheus takes an empty one for none
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Sample = tuple[Labels, float]


@dataclass(frozen=True, slots=True)
class Panel:
    group: str
    title: str
    more: tuple[str, ...]  # metrics that share it


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    when: str  # what follows the expression, or a whole one with $metric in it
    hold: str  # how long it must hold
    severity: str
    summary: str
    description: str
    also_of_all: bool  # replicas together
    only: str  # "watch" or "vllm": rules of one of them; empty: both


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    help: str
    unit: str  # as Grafana calls it
    labels: tuple[str, ...]
    figure: str  # a field of WindowFigures, or empty
    panel: Panel | None
    vllm: str  # the same from vLLM's own metrics, or empty
    alert: Alert | None


def _read_metrics() -> tuple[Metric, ...]:
    text = resources("outdraft.watch").joinpath("metrics.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    metrics = []
    for name, data in table["metric"].items():
        panel, alert = data.get("panel"), data.get("alert")
        own = () if data.get("is_of_the_watch") else ("replica",)
        metrics.append(
            Metric(
                name,
                data["help"],
                table["units"][data["unit"]],
                (*own, *data.get("labels", ())),
                data.get("figure", ""),
                panel and Panel(panel["group"], panel["title"], tuple(panel.get("and", ()))),
                data.get("vllm", ""),
                alert
                and Alert(
                    alert["name"],
                    alert["when"],
                    alert["for"],
                    alert["severity"],
                    alert["summary"],
                    alert["description"],
                    alert.get("all", False),
                    alert.get("only", ""),
                ),
            )
        )
    return tuple(metrics)


METRICS = _read_metrics()


def metrics_page(snapshot: Snapshot) -> str:
    lines = []
    for metric in METRICS:
        samples = list(_samples(metric, snapshot))
        if samples:
            lines += [f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} gauge"]
            lines += [f"{metric.name}{_labels(labels)} {value!r}" for labels, value in samples]
    return "\n".join(lines) + "\n"


def _samples(metric: Metric, snapshot: Snapshot) -> Iterator[Sample]:
    if metric.name in _OF_THE_WATCH:
        value = _OF_THE_WATCH[metric.name](snapshot)
        if value is not None:
            yield {}, value
        return
    for view in (snapshot.fleet, *snapshot.replicas):
        if view.state is ReplicaState.GONE and metric.name != _STATES:
            continue  # nothing is left to be done there
        replica = ALL if view.name == FLEET else view.name
        for labels, value in _samples_of(metric, view, snapshot):
            if value is not None and math.isfinite(value):
                yield {"replica": replica, **labels}, float(value)


def _samples_of(
    metric: Metric, view: ReplicaView, snapshot: Snapshot
) -> Iterable[tuple[Labels, float | None]]:
    if metric.figure:
        return [({}, None if view.window is None else getattr(view.window, metric.figure))]
    if metric.name == "outdraft_watch_up" and view.name == FLEET:
        return [({}, _share_up(snapshot.replicas))]
    return _OTHERS[metric.name](view)


def _share_up(replicas: Iterable[ReplicaView]) -> float | None:
    known = [view.state is ReplicaState.UP for view in replicas if view.state in _ANSWERING]
    return sum(known) / len(known) if known else None


_ANSWERING = (ReplicaState.UP, ReplicaState.DOWN)


def _up(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    return [({}, float(view.state is ReplicaState.UP))] if view.state in _ANSWERING else []


def _what_it_is(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    if view.name == FLEET:
        return []
    labels = {
        "engine": view.engine or "",
        "model": view.model or "",
        "version": view.version or "",
        "state": str(view.state),
    }
    return [(labels, 1.0)]


def _speculates(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    return [({}, None if view.speculates is None else float(view.speculates))]


def _of_benefit(value: Callable[[Benefit], float | None]) -> Figures:
    def samples(view: ReplicaView) -> list[tuple[Labels, float | None]]:
        benefit = view.benefit
        if benefit is None or benefit.is_of_little:
            return []
        return [({"source": str(benefit.source)}, value(benefit))]

    return samples


def _advice(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    if view.advice is None or not _is_heard(view):
        return []
    given = view.advice.action
    return [({"action": str(action)}, float(action is given)) for action in Action]


def _is_heard(view: ReplicaView) -> bool:
    """It answers, or did in the window: one look that failed takes no advice off the page."""
    return view.state is ReplicaState.UP or view.window is not None


def _alarms(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    kinds = dict.fromkeys(alarm.kind for alarm in view.alarms)  # each once
    return [({"kind": kind}, 1.0) for kind in kinds]


def _lost(field: str) -> Figures:
    def samples(view: ReplicaView) -> list[tuple[Labels, float | None]]:
        return [({}, None if view.advice is None else getattr(view.advice, field))]

    return samples


def _by_position(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    rates = () if view.window is None else view.window.acceptance_by_position
    return [({"position": str(position)}, rate) for position, rate in enumerate(rates)]


def _by_temperature(view: ReplicaView) -> list[tuple[Labels, float | None]]:
    if view.window is None:
        return []
    whole = view.window.acceptance_of_requests
    bands = {**view.window.bands, **({} if whole is None else {ALL: whole})}
    return [
        ({"temperature": band, **labels}, value)
        for band, quantiles in bands.items()
        for labels, value in _percentiles(quantiles)
    ]


def _times(kind: str) -> Figures:
    def samples(view: ReplicaView) -> list[tuple[Labels, float | None]]:
        times = {} if view.window is None else view.window.times
        return _percentiles(times[kind]) if kind in times else []

    return samples


def _percentiles(quantiles: Quantiles) -> list[tuple[Labels, float | None]]:
    points = {"P10": quantiles.p10, "P50": quantiles.p50, "P90": quantiles.p90,
              "P99": quantiles.p99}  # fmt: skip
    return [({"percentile": name}, value) for name, value in points.items()]


def _takes_events(snapshot: Snapshot) -> float | None:
    return None if snapshot.posting is None else float(not snapshot.posting.problem)


def _events_lost(snapshot: Snapshot) -> float | None:
    return None if snapshot.posting is None else float(snapshot.posting.num_lost)


_OF_THE_WATCH: Mapping[str, Callable[[Snapshot], float | None]] = {
    "outdraft_watch_last_look_timestamp_seconds": lambda snapshot: snapshot.at,
    "outdraft_watch_webhook_takes_events": _takes_events,
    "outdraft_watch_webhook_events_lost": _events_lost,
}
Figures = Callable[[ReplicaView], list[tuple[Labels, float | None]]]
_OTHERS: dict[str, Figures] = {
    "outdraft_watch_net_benefit": _of_benefit(lambda benefit: benefit.estimate),
    "outdraft_watch_net_benefit_low": _of_benefit(lambda benefit: benefit.low),
    "outdraft_watch_net_benefit_high": _of_benefit(lambda benefit: benefit.high),
    "outdraft_watch_advice": _advice,
    "outdraft_watch_alarm": _alarms,
    "outdraft_watch_lost_tokens_per_hour": _lost("lost_tokens_per_hour"),
    "outdraft_watch_lost_gpu_seconds_per_hour": _lost("lost_gpu_seconds_per_hour"),
    "outdraft_watch_lost_money_per_hour": _lost("lost_money_per_hour"),
    "outdraft_watch_acceptance_rate_by_position": _by_position,
    "outdraft_watch_request_acceptance_rate": _by_temperature,
    "outdraft_watch_speculates": _speculates,
    "outdraft_watch_ttft_seconds": _times("ttft"),
    "outdraft_watch_tpot_seconds": _times("tpot"),
    "outdraft_watch_e2e_seconds": _times("e2e"),
    "outdraft_watch_up": _up,
    _STATES: _what_it_is,
}


def _labels(labels: Labels) -> str:
    written = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{written}}}" if written else ""


def _escaped(text: str) -> str:
    """Names of replicas and models come from outside, and must stay within their quotes."""
    shown = "".join(
        each if each.isprintable() or each == "\n" else "\N{REPLACEMENT CHARACTER}" for each in text
    )
    return shown.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

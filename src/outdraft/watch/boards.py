"""Alert rules for Prometheus and dashboards for Grafana, made of the declarations of the metrics.

Each comes twice: on the figures of a watch that runs, and on vLLM's own metrics, which know no net
benefit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from outdraft.emit.quoting import comments
from outdraft.emit.yaml import yaml_lines
from outdraft.version import __version__
from outdraft.watch.metrics import ALL, METRICS, Alert, Metric
from outdraft.whole_file import write_json, write_text

_WINDOW = "10m"
_PERCENTILES = {"P50": "0.5", "P99": "0.99"}
_SCHEMA = 39  # of Grafana 10.4 and later, which read older ones too
_COLUMNS, _HEIGHT = 2, 8  # panels in a row; a dashboard is 24 units wide
_DATA = {"type": "prometheus", "uid": "${datasource}"}


class Kind(NamedTuple):
    """Whose metrics a board is about."""

    name: str
    title: str
    replica: str  # the label that names a replica
    about: str


WATCH = Kind("watch", "Speculation: is it paying?", "replica", "figures of `outdraft watch`")
VLLM = Kind("vllm", "Speculation: vLLM's own figures", "instance", "vLLM's own metrics")
KINDS = (WATCH, VLLM)


class Query(NamedTuple):
    expression: str
    legend: str


def write_boards(folder: Path) -> list[Path]:
    paths = []
    for kind in KINDS:
        paths += [folder / f"rules-{kind.name}.yml", folder / f"grafana-{kind.name}.json"]
        write_text(paths[-2], rules_text(kind))
        write_json(paths[-1], dashboard(kind), indent=2)
    return paths


def rules_text(kind: Kind) -> str:
    head = (
        f"Alerts on {kind.about}, written by outdraft {__version__} (watch --write-boards).",
        "Name this file under rule_files in prometheus.yml.",
    )
    rules = [_rule(metric, alert, kind) for metric, alert in alerts(kind)]
    document = {"groups": [{"name": f"outdraft-{kind.name}", "rules": rules}]}
    return "\n".join([*comments(head), *yaml_lines(document), ""])


def alerts(kind: Kind) -> Iterator[tuple[Metric, Alert]]:
    for metric in METRICS:
        alert = metric.alert
        if alert is not None and alert.only in ("", kind.name) and (kind is WATCH or metric.vllm):
            yield metric, alert


def _rule(metric: Metric, alert: Alert, kind: Kind) -> dict[str, Any]:
    if "$metric" in alert.when:
        expression = alert.when.replace("$metric", metric.name)
    elif kind is WATCH:
        chosen = "" if alert.also_of_all else f'{{replica!="{ALL}"}}'
        expression = f"{metric.name}{chosen} {alert.when}"
    else:
        expression = f"({metric.vllm.replace('$window', _WINDOW)}) {alert.when}"
    words = {"summary": alert.summary, "description": alert.description}
    return {
        "alert": alert.name,
        "expr": expression,
        "for": alert.hold,
        "labels": {"severity": alert.severity},
        "annotations": {name: text.replace("$replica", kind.replica)
                        for name, text in words.items()},
    }  # fmt: skip


def dashboard(kind: Kind) -> dict[str, Any]:
    """For Grafana's import: it asks which Prometheus to read."""
    return {
        "uid": f"outdraft-{kind.name}",
        "title": kind.title,
        "description": f"On {kind.about}. Made by outdraft {__version__}.",
        "tags": ["outdraft", "speculative decoding"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource_variable(), _replica_variable(kind)]},
        "annotations": {"list": [_annotations()] if kind is WATCH else []},
        "panels": list(_panels(kind)),
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource",
            "query": "prometheus"}  # fmt: skip


def _replica_variable(kind: Kind) -> dict[str, Any]:
    of = "outdraft_watch_up" if kind is WATCH else "vllm:num_requests_running"
    query = f"label_values({of}, {kind.replica})"
    return {
        "name": "replica",
        "label": "Replica",
        "type": "query",
        "datasource": _DATA,
        "query": {"query": query, "refId": "replica"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _annotations() -> dict[str, Any]:
    """Alarms, drawn over every panel."""
    return {
        "name": "Alarms",
        "datasource": _DATA,
        "enable": True,
        "iconColor": "orange",
        "expr": 'outdraft_watch_alarm{replica=~"$replica"} == 1',
        "titleFormat": "{{kind}}",
        "textFormat": "{{replica}}",
    }


def _panels(kind: Kind) -> Iterator[dict[str, Any]]:
    """A row for each group, in the order of the declarations."""
    number, top, group, column = 0, 0, "", 0
    for metric in METRICS:
        panel, queries = metric.panel, _queries(metric, kind)
        if panel is None or not queries:
            continue
        if panel.group != group:
            top += _HEIGHT if column else 0
            number, group, column = number + 1, panel.group, 0
            at = {"x": 0, "y": top, "w": 24, "h": 1}
            yield {"id": number, "type": "row", "title": group, "gridPos": at, "collapsed": False,
                   "panels": []}  # fmt: skip
            top += 1
        number, width = number + 1, 24 // _COLUMNS
        at = {"x": column * width, "y": top, "w": width, "h": _HEIGHT}
        yield _panel(number, metric, panel.title, queries, at)
        column = (column + 1) % _COLUMNS
        top += 0 if column else _HEIGHT


def _panel(
    number: int, metric: Metric, title: str, queries: list[Query], at: dict[str, int]
) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _DATA, "expr": query.expression,
         "legendFormat": query.legend, "range": True}
        for index, query in enumerate(queries)
    ]  # fmt: skip
    defaults: dict[str, Any] = {"unit": metric.unit, "custom": {"lineWidth": 2, "fillOpacity": 4}}
    if metric.name == "outdraft_watch_net_benefit":  # the line between a gain and a loss
        defaults["thresholds"] = {"mode": "absolute", "steps": [
            {"value": None, "color": "red"}, {"value": 1, "color": "green"}]}  # fmt: skip
        defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
    return {
        "id": number,
        "type": "state-timeline" if metric.unit == "bool" else "timeseries",
        "title": title,
        "description": metric.help,
        "datasource": _DATA,
        "gridPos": at,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                    "tooltip": {"mode": "multi", "sort": "desc"}},
    }  # fmt: skip


def _queries(metric: Metric, kind: Kind) -> list[Query]:
    panel = metric.panel
    more = () if panel is None else panel.more
    shown = [metric, *(each for each in METRICS if each.name in more)]
    return [query for each in shown for query in _queries_of(each, kind, len(shown) > 1)]


def _queries_of(metric: Metric, kind: Kind, is_named: bool) -> Iterator[Query]:
    own = [name for name in metric.labels if name != "replica"]
    legend = " ".join(f"{{{{{name}}}}}" for name in (kind.replica, *own) if name != "percentile")
    if is_named:
        legend += f" {metric.name.removeprefix('outdraft_watch_').replace('_', ' ')}"
    if kind is WATCH:
        percentile = ', percentile=~"P50|P99"' if "percentile" in own else ""
        shown = f"{legend} {{{{percentile}}}}" if percentile else legend
        is_flag = " == 1" if own == ["action"] else ""  # those not advised are 0
        chosen = f'{{replica=~"$replica"{percentile}}}'
        yield Query(f"{metric.name}{chosen}{is_flag}", shown)
    elif metric.vllm:
        whole = f"({metric.vllm.replace('$window', _WINDOW)}) and on (instance) {_CHOSEN}"
        if "$quantile" not in whole:
            yield Query(whole, legend)
            return
        for name, quantile in _PERCENTILES.items():
            yield Query(whole.replace("$quantile", quantile), f"{legend} {name}")


_CHOSEN = 'vllm:num_requests_running{instance=~"$replica"}'

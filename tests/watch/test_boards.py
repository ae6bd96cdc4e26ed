"""Rules by the real promtool where it is installed, by their structure everywhere. Expressions of
dashboards are made into rules, so that the same parser reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import encoder, plugins
from grafana_foundation_sdk.models import dashboard as models

from outdraft.watch.boards import KINDS, VLLM, WATCH, Kind, alerts, dashboard, rules_text
from outdraft.watch.boards import write_boards as write
from outdraft.watch.metrics import METRICS
from tests.watch.promtool import needs_promtool, promtool

BOTH = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


def rules(kind: Kind) -> list[dict[str, Any]]:
    [group] = yaml.safe_load(rules_text(kind))["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions(board: dict[str, Any]) -> list[str]:
    """With values in the place of Grafana's variables."""
    found = [query["expr"] for panel in board["panels"] for query in panel.get("targets", ())]
    found += [each["expr"] for each in board["annotations"]["list"]]
    return [each.replace("$replica", ".*") for each in found]


@BOTH
def test_rules_have_all_parts(kind: Kind) -> None:
    found = rules(kind)
    assert len(found) == len(list(alerts(kind))) >= 3
    assert len({rule["alert"] for rule in found}) == len(found)
    for rule in found:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        for text in rule["annotations"].values():
            assert text.count("{{") == text.count("}}")
            assert "$replica" not in text
            assert kind is WATCH or "$labels.replica" not in text


@BOTH
def test_no_metric_is_unknown(kind: Kind) -> None:
    """An expression on the watch names declared metrics only; one on vLLM none of ours."""
    known = {metric.name for metric in METRICS}
    for expression in [rule["expr"] for rule in rules(kind)] + expressions(dashboard(kind)):
        words = {word for word in _words(expression) if word.startswith("outdraft_watch_")}
        assert words <= known, expression
        assert bool(words) == (kind is WATCH), expression
        assert "$" not in expression, expression


def _words(expression: str) -> set[str]:
    return set("".join(each if each.isalnum() or each in "_:" else " " for each in expression)
               .split())  # fmt: skip


def test_every_metric_is_on_a_board_or_says_nothing_over_time() -> None:
    text = json.dumps(dashboard(WATCH))
    left_out = {metric.name for metric in METRICS if f"{metric.name}{{" not in text}
    assert left_out == {
        "outdraft_watch_lost_gpu_seconds_per_hour",
        "outdraft_watch_lost_money_per_hour",
        "outdraft_watch_speculates",
        "outdraft_watch_restarts",
        "outdraft_watch_replica",
        "outdraft_watch_last_look_timestamp_seconds",
        "outdraft_watch_webhook_takes_events",
        "outdraft_watch_webhook_events_lost",
    }


@BOTH
def test_panels_have_places_of_their_own(kind: Kind) -> None:
    board = dashboard(kind)
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 8
    places = [panel["gridPos"] for panel in panels]
    for place in places:
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for a, b in combinations(places, 2):
        is_apart = (
            a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]
        )  # fmt: skip
        assert is_apart, (a, b)
    for panel in panels:
        refs = [query["refId"] for query in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)
    assert isinstance(board["schemaVersion"], int)
    assert board["uid"] == f"outdraft-{kind.name}"


@BOTH
@needs_promtool
def test_promtool_takes_the_rules(kind: Kind, tmp_path: Path) -> None:
    write(tmp_path)
    said = promtool("check", "rules", str(tmp_path / f"rules-{kind.name}.yml"))
    assert f"SUCCESS: {len(rules(kind))} rules found" in said


@BOTH
@needs_promtool
def test_promtool_takes_every_expression_of_a_dashboard(kind: Kind, tmp_path: Path) -> None:
    made = [
        {"record": f"panel:{number}", "expr": expression}
        for number, expression in enumerate(expressions(dashboard(kind)))
    ]
    file = tmp_path / "panels.yml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": made}]}))
    assert f"SUCCESS: {len(made)} rules found" in promtool("check", "rules", str(file))


PLAYS: dict[str, tuple[Kind, dict[str, str], str]] = {
    # by alert: series of a fault, and the label that the alert has
    "SpeculationLoses": (
        WATCH,
        {'outdraft_watch_net_benefit_high{replica="a",source="control"}': "0.93x40",
         'outdraft_watch_net_benefit_high{replica="b",source="control"}': "1.2x40",
         'outdraft_watch_net_benefit_high{replica="all",source="control"}': "0.95x40"},
        "replica: a, source: control",
    ),
    "SpeculationAlarm": (
        WATCH, {'outdraft_watch_alarm{replica="all",kind="slow_decay"}': "1x40"},
        "replica: all, kind: slow_decay",
    ),
    "SpeculationWatchStopped": (
        WATCH, {"outdraft_watch_last_look_timestamp_seconds": "60x40"}, "",
    ),
    "SpeculationAcceptanceLow": (
        VLLM,
        {'vllm:spec_decode_num_drafts_total{instance="a"}': "0+600x40",
         'vllm:spec_decode_num_accepted_tokens_total{instance="a"}': "0+30x40",
         'vllm:spec_decode_num_drafts_total{instance="b"}': "0+600x40",
         'vllm:spec_decode_num_accepted_tokens_total{instance="b"}': "0+1200x40"},
        "instance: a",
    ),
    "SpeculationSilent": (
        VLLM,
        {'vllm:spec_decode_num_drafts_total{instance="a"}': "7x40",
         'vllm:generation_tokens_total{instance="a"}': "0+500x40",
         'vllm:spec_decode_num_drafts_total{instance="idle"}': "7x40",
         'vllm:generation_tokens_total{instance="idle"}': "5x40"},
        "instance: a",
    ),
}  # fmt: skip


@needs_promtool
@pytest.mark.parametrize("name", PLAYS)
def test_a_fault_fires_its_alert(name: str, tmp_path: Path) -> None:
    """Played by promtool: 40 minutes of planted series, healthy ones beside them."""
    kind, series, labels = PLAYS[name]
    played = rules(kind)
    for rule in played:
        del rule["annotations"]  # they name measured values
    [rule] = [rule for rule in played if rule["alert"] == name]
    (tmp_path / "rules.yml").write_text(
        json.dumps({"groups": [{"name": "played", "rules": played}]})
    )
    expected = rule["labels"] | dict(each.split(": ") for each in labels.split(", ") if each)
    fires = {"eval_time": "30m", "alertname": name, "exp_alerts": [{"exp_labels": expected}]}
    inputs = [{"series": key, "values": values} for key, values in series.items()]
    tests = [{"interval": "1m", "input_series": inputs, "alert_rule_test": [fires]}]
    (tmp_path / "play.yml").write_text(json.dumps({"rule_files": ["rules.yml"], "tests": tests}))
    assert "SUCCESS" in promtool("test", "rules", str(tmp_path / "play.yml"))


# Fields of Prometheus' own annotations, which are not part of the dashboard's types.
OF_THE_DATA_SOURCE = {"titleFormat", "textFormat"}


@BOTH
def test_grafana_reads_all_of_it(kind: Kind) -> None:
    """By Grafana's own types."""
    plugins.register_default_plugins()
    written = json.loads(json.dumps(dashboard(kind)))
    read = json.loads(encoder.JSONEncoder().encode(models.Dashboard.from_json(written)))
    assert list(_left_out(written, read)) == []


def _left_out(written: Any, read: Any, path: str = "") -> Iterator[str]:
    """What is in the first and not, or not so, in the second."""
    if isinstance(written, dict):
        for key, value in written.items():
            if key not in OF_THE_DATA_SOURCE:
                yield from _left_out(value, read.get(key), f"{path}.{key}")
    elif isinstance(written, list):
        for number, value in enumerate(written):
            yield from _left_out(value, read[number], f"{path}[{number}]")
    elif written != read:
        yield path


def test_files(tmp_path: Path) -> None:
    names = [path.name for path in write(tmp_path / "boards")]
    assert names == [
        "rules-watch.yml", "grafana-watch.json", "rules-vllm.yml", "grafana-vllm.json",
    ]  # fmt: skip
    for name in names:
        text = (tmp_path / "boards" / name).read_text()
        assert yaml.safe_load(text)

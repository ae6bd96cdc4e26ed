from __future__ import annotations

import re
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from outdraft.observe.page import parse_samples
from outdraft.watch.metrics import METRICS, metrics_page
from outdraft.watch.snapshot import Snapshot
from tests.watch.promtool import needs_promtool, promtool
from tests.watch.sample_snapshot import AT, ODD_NAME, benefit, empty_snapshot, sample_snapshot


def values(snapshot: Snapshot) -> dict[str, dict[tuple[str, ...], float]]:
    """By name: label values in order → value, as prometheus_client reads them."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(metrics_page(snapshot)):
        for sample in family.samples:
            of_name = found.setdefault(sample.name, {})
            key = tuple(sample.labels.values())
            assert key not in of_name, "a series twice: Prometheus refuses the whole page"
            of_name[key] = sample.value
    return found


def test_what_a_page_says() -> None:
    page = values(sample_snapshot())
    first, second = "http://10.0.0.1:8000", "http://10.0.0.2:8000"
    assert page["outdraft_watch_net_benefit"] == {
        ("all", "control"): 1.21, (first, "control"): 1.76, (second, "control"): 0.87,
    }  # fmt: skip
    assert page["outdraft_watch_net_benefit_low"][first, "control"] == 1.69
    assert page["outdraft_watch_acceptance_length"][second,] == 1.48
    assert page["outdraft_watch_advice"][second, "TURN OFF"] == 1
    assert page["outdraft_watch_advice"][second, "KEEP"] == 0
    assert page["outdraft_watch_alarm"] == {(second, "drafts_worthless"): 1}
    assert page["outdraft_watch_up"][ODD_NAME,] == 0
    assert page["outdraft_watch_up"]["all",] == 0.75
    assert page["outdraft_watch_ttft_seconds"][first, "P99"] == 0.41
    assert page["outdraft_watch_request_acceptance_rate"][first, "1+", "P10"] == 0.2
    assert page["outdraft_watch_request_acceptance_rate"][first, "all", "P90"] == 0.8
    assert page["outdraft_watch_acceptance_rate_by_position"][first, "3"] == 0.5
    assert page["outdraft_watch_lost_tokens_per_hour"][second,] == 65_600
    assert page["outdraft_watch_last_look_timestamp_seconds"] == {(): AT}
    assert page["outdraft_watch_webhook_takes_events"] == {(): 0.0}
    assert page["outdraft_watch_webhook_events_lost"] == {(): 2.0}


def test_a_benefit_of_a_small_part_is_no_figure_of_a_replica() -> None:
    snapshot = sample_snapshot()
    little = replace(benefit(2.5, None, None), share=0.01)
    page = values(replace(snapshot, fleet=replace(snapshot.fleet, benefit=little)))
    assert ("all", "control") not in page["outdraft_watch_net_benefit"]


def test_every_metric_is_served() -> None:
    assert {metric.name for metric in METRICS} == set(values(sample_snapshot()))


def test_nothing_is_known_yet() -> None:
    assert set(values(empty_snapshot())) == {"outdraft_watch_last_look_timestamp_seconds"}


def test_names_from_outside_stay_in_their_quotes() -> None:
    text = metrics_page(sample_snapshot())
    for line in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) outdraft_watch_\w+ .+|outdraft_watch_\w+(\{.*\})? \S+",
                            line), line  # fmt: skip
    [model] = [
        labels["model"]
        for name, labels, _ in parse_samples(text)
        if name == "outdraft_watch_replica" and labels["state"] == "down"
    ]
    assert model.startswith("</style>")


@needs_promtool
@pytest.mark.parametrize("snapshot", [sample_snapshot(), empty_snapshot()])
def test_promtool_finds_no_fault(snapshot: Snapshot) -> None:
    assert promtool("check", "metrics", text=metrics_page(snapshot)) == ""

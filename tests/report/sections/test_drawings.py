"""Every kind of picture, from every kind of results: whole XML, finite numbers, inside itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from outdraft.report.markup import Markup
from outdraft.report.plot import Axis
from outdraft.report.sections.acceptance import (
    AcceptanceCurve,
    Spread,
    category_spreads,
    curves_by_temperature,
    position_plot,
    ranked,
    spread_plot,
    temperature_plot,
)
from outdraft.report.sections.latency import latencies, latency_plot
from outdraft.report.sections.loads import (
    schedule_plot,
    schedule_rows,
    speedup_plot,
    throughput_plot,
)
from outdraft.report.sections.memory import memory_parts, memory_plot
from outdraft.report.sections.prediction import prediction_plot, predictions_of
from outdraft.tune.results import MemoryResult, Results
from tests.report.odd_results import ODD
from tests.report.sample_results import sample_results

ALL = {"sample": sample_results, **ODD}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def drawn(results: Results) -> Iterator[Markup]:
    axis = Axis("load", [(0.0, "first")])
    yield speedup_plot(results.loads, axis)
    yield throughput_plot(results.loads, axis)
    yield schedule_plot(schedule_rows(results))
    yield prediction_plot(predictions_of(results), [load.name for load in results.loads])
    for load in results.loads:
        yield from (latency_plot(each) for each in latencies(load))
    for found in ranked(results):
        yield position_plot(curves_by_temperature(found), "label")
        yield spread_plot(category_spreads(found), "label")
        values = tuple(found.by_temperature.values())
        yield temperature_plot([AcceptanceCurve("a", values)], list(found.by_temperature), "label")
    if results.memory is not None:
        yield memory_plot(memory_parts(results.memory), "label")


@pytest.mark.parametrize("name", ALL)
def test_all_of_it_can_be_drawn(name: str) -> None:
    for each in drawn(ALL[name]()):
        check(ElementTree.fromstring(each))


def check(root: ElementTree.Element) -> None:
    _, _, width, height = map(float, str(root.get("viewBox")).split())
    assert root.get("aria-label")
    for element in root.iter():
        for key, value in element.attrib.items():
            assert "nan" not in value
            assert "inf" not in value
            if key in ("x", "cx", "x1", "x2"):
                assert -6 <= float(value) <= width + 6, ElementTree.tostring(element)
            if key in ("y", "cy", "y1", "y2"):
                assert -6 <= float(value) <= height + 6, ElementTree.tostring(element)


def count(markup: Markup, kind: str) -> int:
    return sum(
        kind in str(each.get("class")).split() for each in ElementTree.fromstring(markup).iter()
    )


def test_a_curve_and_its_points() -> None:
    plot = position_plot(
        [AcceptanceCurve("a", (0.9, 0.7, 0.4)), AcceptanceCurve("b", (0.5,))], "label"
    )
    assert count(plot, "curve") == 2
    assert count(plot, "dot") == 4
    assert "<title>a: 0.70 position 2</title>" in plot


def test_a_band_that_is_not_known_is_left_out() -> None:
    plot = temperature_plot(
        [AcceptanceCurve("a", (0.9, float("nan"), 0.4))], ["0", "0-0.3", "1+"], "label"
    )
    assert count(plot, "dot") == 2


def test_steps_end_where_the_axis_does() -> None:
    latency = latencies(sample_results().loads[0])[1]
    plot = ElementTree.fromstring(latency_plot(latency))
    curve = next(each for each in plot.iter() if each.get("class") == "curve off")
    numbers = [float(each) for each in _NUMBER.findall(str(curve.get("d")))]
    xs, ys = numbers[::2], numbers[1::2]
    assert xs == sorted(xs)
    assert ys == sorted(ys, reverse=True)
    assert count(latency_plot(latency), "dot") == 4, "P50 and P95 of both"


def test_ranges_that_are_half_known() -> None:
    plot = spread_plot([Spread("a", None, 0.5, None), Spread("b", None, None, None)], "label")
    assert count(plot, "dot") == 1
    assert "too few requests" in plot


def test_intervals_where_there_are_some() -> None:
    results = sample_results()
    plot = speedup_plot(results.loads, Axis("load", []))
    assert count(plot, "whisker") == 9
    assert "concurrency 4: 1.97× [1.93, 2.02] n=240" in plot


def test_off_in_a_schedule() -> None:
    plot = schedule_plot([("1–4", 5), ("5+", 0)])
    assert "<title>5+ requests running: off</title>" in plot
    assert count(plot, "column") == 2


def test_a_small_part_of_memory_is_seen() -> None:
    parts = memory_parts(MemoryResult(target=10**9, draft=1, kv=0, free=0, total=10**9 + 1))
    drawn = ElementTree.fromstring(memory_plot(parts, "x"))
    widths = [float(str(each.get("width"))) for each in drawn.iter("rect")]
    assert len(widths) == 2
    assert min(widths) >= 4

"""The pages of `bench` and `compare`, from results made by hand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR
from outdraft.measure.bench import Bench
from outdraft.report.bench_page import bench_page
from outdraft.report.compare_page import compare_page
from outdraft.stats.ratios import Ratio
from tests.report.bench_pages import (
    OTHER_PAGES,
    hostile_bench,
    hostile_run,
    invalid_sessions,
    load_of,
    nothing_compared,
    ratio,
    run_of,
    sweep,
    unanswered,
)
from tests.report.test_page import seen


def keys_of(page: str) -> list[str]:
    tags = seen(page).tags
    return [each["id"] or "" for name, each in tags if name == "section"]


def test_one_load() -> None:
    page = bench_page(Bench((load_of(4),)))
    assert keys_of(page) == ["figures", "times", "acceptance", "server", "run"]
    found = " ".join(seen(page).texts)
    for words in ("tokens a second at concurrency 4", "TTFT, median", "95 % interval",
                  "31.5 GiB in use at most, busy 80 % of the time", "goodput", "n=48"):  # fmt: skip
        assert words in found
    assert "P99" in found
    assert "too few" not in found


def test_several_loads_and_where_it_is_saturated() -> None:
    bench = sweep()
    assert bench.saturation is not None
    page = bench_page(bench)
    assert keys_of(page) == ["figures", "loads", "times", "acceptance", "server", "run"]
    found = " ".join(seen(page).texts)
    words = bench.saturation.words
    assert words[1:] in found
    assert found.count("concurrency 32") > 3
    assert page.count("<svg") >= 4 + 3


def test_sessions_failures_and_what_is_not_valid() -> None:
    page = bench_page(invalid_sessions())
    assert "turns" in keys_of(page)
    found = " ".join(seen(page).texts)
    for words in ("INVALID", "These figures are not the server", "it was too slow", "1 failed"):
        assert words in found


def test_nothing_answered() -> None:
    page = bench_page(unanswered())
    for words in ("an unknown engine", "no metrics page", "No request was answered."):
        assert words in page


def test_texts_from_outside_stay_text() -> None:
    for page in (bench_page(hostile_bench()), compare_page(hostile_run())):
        assert "<script" not in page
        assert "alert(1)" in page


@pytest.mark.parametrize("decision", [SHIP, SHIP_FOR, DONT_SHIP, INCONCLUSIVE])
def test_every_verdict_has_a_page(decision: str) -> None:
    page = compare_page(run_of(decision))
    assert keys_of(page)[:3] == ["verdict", "ratios", "times"]
    found = " ".join(seen(page).texts)
    for words in (decision, "http://b:1", "1.30×", "[1.25, 1.35]", "n=240 in 20 blocks",
                  "category code"):  # fmt: skip
        assert words in found


def test_a_p99_only_where_there_are_pairs_enough_for_one() -> None:
    run = run_of(SHIP)
    assert "the tail is not known: 240 pairs are too few for a P99" in run.verdict.reasons
    assert ">P99<" not in compare_page(run)
    known = replace(run.evidence, p99=ratio(1.2))
    assert ">P99<" in compare_page(replace(run, evidence=known))


def test_a_comparison_without_intervals() -> None:
    evidence = Evidence(e2e=Ratio(1.2, None, None, 0.95, 9, 3))
    page = compare_page(replace(run_of(INCONCLUSIVE), evidence=evidence))
    assert "no interval" in page


def test_nothing_could_be_compared() -> None:
    page = compare_page(nothing_compared())
    for words in ("Not proven either way", "No pair of requests was answered by both."):
        assert words in page


@pytest.mark.parametrize("name", OTHER_PAGES)
def test_no_two_regions_have_one_name(name: str) -> None:
    """Else a screen reader's list of them has two that cannot be told apart."""
    page = OTHER_PAGES[name]()
    titles = re.findall(r"<h2[^>]*>(.*?)</h2>", page)
    names = [*titles, *re.findall(r'role="region" aria-label="(.*?)"', page)]
    assert len({each.lower() for each in names}) == len(names)
    assert titles


def test_a_speedup_and_its_interval_have_one_size() -> None:
    assert compare_page(run_of(SHIP)).count('<span class="pair">') == 2 * 3

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from outdraft.report.sections.latency import latencies, latency_section
from outdraft.speculation import OFF, Speculation
from outdraft.tune.results import BASELINE, BEST, ArmResult, LoadResult
from tests.report.odd_results import one_load_failed
from tests.report.sample_results import sample_results

_times = st.lists(st.floats(0.01, 1e5), min_size=1, max_size=500).map(tuple)


def load_of(off: tuple[float, ...], best: tuple[float, ...]) -> LoadResult:
    arms = (
        ArmResult("off", OFF, BASELINE, tpot_ms=off),
        ArmResult("ngram k=3", Speculation("ngram", k=3), BEST, tpot_ms=best),
    )
    return LoadResult("concurrency 1", 1, None, arms, "ngram k=3", None)


def test_all_kinds_of_the_sample() -> None:
    found = latencies(sample_results().loads[0])
    assert [each.name for each in found] == ["TPOT", "e2e", "TTFT"]
    for each in found:
        assert each.off.count == each.best.count == 240
        assert [quantile.q for quantile in each.best.quantiles] == [0.5, 0.95, 0.99]


def test_only_where_both_have_times() -> None:
    assert latencies(one_load_failed().loads[-1]) == ()
    assert latencies(load_of((1.0,), ())) == ()
    assert latencies(replace(load_of((1.0,), (2.0,)), best=None)) == ()


def test_times_of_other_loads_are_shown_where_the_main_one_has_none() -> None:
    results = one_load_failed()
    section = latency_section(replace(results, main_load=results.loads[-1].name))
    assert f"At {results.loads[0].name}: the share" in section
    assert section.count("The same at") == 1


@given(_times, _times)
def test_curves_rise_to_all_requests(off: tuple[float, ...], best: tuple[float, ...]) -> None:
    (found,) = latencies(load_of(off, best))
    for each, values in ((found.off, off), (found.best, best)):
        assert len(each.points) <= 161
        assert list(each.points) == sorted(each.points)
        assert each.points[-1] == (max(values), 1.0)
        for ms, share in each.points:
            assert share <= sum(value <= ms for value in values) / len(values) + 1e-9
    assert found.num_beyond == sum(value > found.end for value in (*off, *best))

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from outdraft.decide.verdict import Verdict
from outdraft.plan.findings import Check
from outdraft.report.sections.latency import latencies, latency_section, pairs_text
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
        assert [quantile.q for quantile in each.best.quantiles] == [0.5, 0.95], "too few for a P99"


def judged(load: LoadResult, *checks: str) -> LoadResult:
    named = tuple(Check(name, 1.1, "at least 1", "ok") for name in checks)
    return replace(load, verdict=Verdict("SHIP", (), (), named))


def test_no_p99_where_the_verdict_says_that_pairs_are_too_few_for_one() -> None:
    """Its checks have a tail exactly where the evidence has a P99."""
    many, few = tuple(map(float, range(1, 401))), tuple(map(float, range(1, 301)))
    tails = {
        "enough": judged(load_of(many, many), "tail"),
        "verdict without": judged(load_of(many, many)),
        "few of one arm": judged(load_of(many, few), "tail"),
        "no verdict": load_of(many, many),
    }
    shown = {name: latencies(load)[0].best.quantiles[-1].q for name, load in tails.items()}
    assert shown == {
        "enough": 0.99, "verdict without": 0.95, "few of one arm": 0.95, "no verdict": 0.99
    }  # fmt: skip
    for load in tails.values():
        section = latency_section(replace(sample_results(), loads=(load,)))
        assert ("No P99: " in section) != (">P99<" in section)


def test_the_pairs_are_those_of_the_checks() -> None:
    """A check of TTFT and the table of times speak of the same speedup."""
    results = sample_results()
    for load in results.loads:
        assert load.verdict is not None
        [check] = [each for each in load.verdict.checks if each.name == "ttft"]
        [ttft] = [each for each in latencies(load) if each.name == "TTFT"]
        assert ttft.pairs is not None
        assert check.value == ttft.pairs.estimate
        assert f"[{ttft.pairs.low:.2f}, {ttft.pairs.high:.2f}]" in check.threshold
        assert f"[{ttft.pairs.low:.2f}, {ttft.pairs.high:.2f}]" in pairs_text(ttft.pairs)
        assert pairs_text(ttft.pairs) in latency_section(results)


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

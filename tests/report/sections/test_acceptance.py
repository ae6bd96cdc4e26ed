from __future__ import annotations

from dataclasses import replace

from outdraft.report.sections.acceptance import (
    acceptance_section,
    category_section,
    category_spreads,
    curves_by_position,
    curves_by_temperature,
    ranked,
    temperature_bands,
)
from outdraft.tune.results import FROM_ANSWERS, FROM_COUNTERS, Results
from tests.report.odd_results import no_acceptance
from tests.report.sample_results import sample_results


def with_counts(each: int) -> Results:
    """`each` requests of every category and temperature; 0: not recorded."""
    results = sample_results()
    counted = tuple(
        replace(
            one,
            num_by_category=dict.fromkeys(one.by_category, each) if each else {},
            num_by_temperature=dict.fromkeys(one.by_temperature, each) if each else {},
        )
        for one in results.acceptance
    )
    return replace(results, acceptance=counted)


def test_every_part_is_shown_with_its_n() -> None:
    first = str(acceptance_section(with_counts(32)))
    assert "temperature 0, n=32" in first
    assert "(n=32)" in first
    second = str(category_section(with_counts(32)))
    assert second.count(", n=32") == 5 * 8, "five proposers, eight categories"
    assert "<td>32</td>" in second


def test_results_of_before_have_none() -> None:
    """They were written without these counts."""
    assert "temperature 0, n=" not in str(acceptance_section(with_counts(0)))
    assert "–" in str(category_section(with_counts(0)))


def test_the_best_arms_proposer_comes_first() -> None:
    names = [each.name for each in ranked(sample_results())]
    assert names[0] == "draft_model smollm2-135m-draft int8"
    rates = [each.rate for each in ranked(sample_results())[1:]]
    assert rates == sorted(rates, reverse=True)
    assert ranked(no_acceptance()) == ()


def test_the_proposer_is_read_from_the_settings_not_from_the_arms_name() -> None:
    results = sample_results()
    loads = tuple(
        replace(load, best="x", arms=tuple(
            replace(arm, name="x") if arm.name == load.best else arm for arm in load.arms
        ))
        for load in results.loads
    )  # fmt: skip
    renamed = ranked(replace(results, loads=loads))
    assert renamed == ranked(results)


def test_curves_by_position() -> None:
    found = ranked(sample_results())
    assert [each.values for each in curves_by_position(found)] == [
        each.per_position for each in found
    ]
    assert curves_by_position([replace(found[0], per_position=())]) == ()


def test_curves_by_temperature() -> None:
    found = ranked(sample_results())[0]
    curves = curves_by_temperature(found)
    assert [each.name for each in curves] == [
        "all", "temperature 0", "temperature 0.3-0.7", "temperature 0.7-1"
    ]  # fmt: skip
    assert [each.is_total for each in curves] == [True, False, False, False]
    lone = replace(found, per_position_by_temperature={"0": found.per_position})
    assert [each.name for each in curves_by_temperature(lone)] == ["all"]
    bands = replace(lone, per_position=())
    assert [each.name for each in curves_by_temperature(bands)] == ["temperature 0"]


def test_bands_in_the_order_of_the_results() -> None:
    assert temperature_bands(ranked(sample_results())) == ("0", "0.3-0.7", "0.7-1")


def test_every_part_has_its_count() -> None:
    found = ranked(with_counts(12))[0]
    assert {each.num_requests for each in category_spreads(found)} == {12}
    assert [each.num_requests for each in curves_by_temperature(found)] == [96, 12, 12, 12]


def test_the_highest_median_first_and_the_unknown_last() -> None:
    found = ranked(sample_results())[0]
    medians = [each.p50 or 0 for each in category_spreads(found)]
    assert medians == sorted(medians, reverse=True)
    unknown = replace(found, by_category={"a": (None, None, None), "b": (None, 0.1, None)})
    assert [each.category for each in category_spreads(unknown)] == ["b", "a"]


def test_three_proposers_are_shown_and_the_others_folded() -> None:
    shown, _, rest = category_section(sample_results()).partition("<summary>2 more proposers")
    assert (shown.count("<figure>"), rest.count("<figure>")) == (3, 2)
    assert "No acceptance by category" in category_section(no_acceptance())


def test_a_chart_for_each_proposer_is_folded_but_for_the_first() -> None:
    shown, _, rest = acceptance_section(sample_results()).partition("<summary>4 more proposers")
    assert (shown.count("<figure>"), rest.count("<figure>")) == (3, 4)
    results = sample_results()
    alone = tuple(
        replace(each, per_position_by_temperature={}, by_temperature={})
        for each in results.acceptance
    )
    section = acceptance_section(replace(results, acceptance=alone))
    assert section.count("<figure>") == 1, "each would be a curve that is in the first one"


def test_how_often_there_is_a_draft_is_said_where_it_is_not_nearly_always() -> None:
    section = acceptance_section(sample_results())
    assert "; drafts in 41 % of steps" in section, "n-gram"
    assert "; drafts in 63 % of steps" in section, "suffix"
    assert section.count("; drafts in ") == 2


def by_counters(results: Results, *names: str) -> Results:
    """As from a server whose answers do not report acceptance; all proposers without `names`."""
    counted = tuple(
        replace(
            each,
            by_category={},
            by_temperature={},
            per_position_by_temperature={},
            source=FROM_COUNTERS,
        )
        if each.name in names or not names
        else replace(each, source=FROM_ANSWERS)
        for each in results.acceptance
    )
    return replace(results, acceptance=counted)


def test_where_the_figures_come_from_is_said() -> None:
    results = sample_results()
    told, silent = str(acceptance_section(by_counters(results))), str(acceptance_section(results))
    assert told.count("from the server&#x27;s counters, per block") == len(results.acceptance)
    assert "By temperature, the acceptance is not known: that needs the acceptance of each" in told
    assert "is not known" not in silent, "results of before do not say it"
    one, *others = (each.name for each in ranked(results))
    mixed = str(acceptance_section(by_counters(results, one)))
    assert mixed.count("from each answer") == len(others)
    assert f"the acceptance of {one} is not known" in mixed


def test_categories_without_the_acceptance_of_each_answer() -> None:
    results = sample_results()
    none = str(category_section(by_counters(results)))
    assert "By category, the acceptance is not known: that needs the acceptance of each" in none
    assert "<figure>" not in none
    one, *others = (each.name for each in ranked(results))
    mixed = str(category_section(by_counters(results, one)))
    assert mixed.count("<figure>") == len(others)
    assert f"the acceptance of {one} is not known" in mixed

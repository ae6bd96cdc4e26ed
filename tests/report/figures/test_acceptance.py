from __future__ import annotations

from dataclasses import replace

from outdraft.report.figures.acceptance import (
    category_ranges,
    ranked,
    survival,
    survival_by_temperature,
    temperature_bands,
)
from outdraft.testing.odd_results import no_acceptance
from outdraft.testing.sample_results import sample_results


def test_the_best_arms_proposer_comes_first() -> None:
    names = [each.name for each in ranked(sample_results())]
    assert names[0] == "draft_model smollm2-135m-draft int8"
    rates = [each.rate for each in ranked(sample_results())[1:]]
    assert rates == sorted(rates, reverse=True)
    assert ranked(no_acceptance()) == ()


def test_curves_by_position() -> None:
    found = ranked(sample_results())
    assert [each.values for each in survival(found)] == [each.per_position for each in found]
    assert survival([replace(found[0], per_position=())]) == ()


def test_curves_by_temperature() -> None:
    found = ranked(sample_results())[0]
    curves = survival_by_temperature(found)
    assert [each.name for each in curves] == [
        "all", "temperature 0", "temperature 0.3-0.7", "temperature 0.7-1"
    ]  # fmt: skip
    assert [each.is_whole for each in curves] == [True, False, False, False]
    lone = replace(found, per_position_by_temperature={"0": found.per_position})
    assert [each.name for each in survival_by_temperature(lone)] == ["all"]


def test_bands_and_categories() -> None:
    found = ranked(sample_results())
    assert temperature_bands(found) == ("0", "0.3-0.7", "0.7-1")
    medians = [each.p50 or 0 for each in category_ranges(found[0])]
    assert medians == sorted(medians, reverse=True)
    unknown = replace(found[0], by_category={"a": (None, None, None), "b": (None, 0.1, None)})
    assert [each.category for each in category_ranges(unknown)] == ["b", "a"]


def test_every_part_has_its_count() -> None:
    found = ranked(sample_results())[0]
    found = replace(
        found,
        num_by_category=dict.fromkeys(found.by_category, 12),
        num_by_temperature=dict.fromkeys(found.by_temperature, 32),
    )
    assert {each.count for each in category_ranges(found)} == {12}
    assert [each.count for each in survival_by_temperature(found)] == [96, 32, 32, 32]

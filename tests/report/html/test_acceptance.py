from __future__ import annotations

from dataclasses import replace

from outdraft.report.html.acceptance import acceptance_section, category_section
from outdraft.testing.sample_results import sample_results
from outdraft.tune.results import Results


def counted() -> Results:
    results = sample_results()
    found = tuple(
        replace(
            each,
            num_by_category=dict.fromkeys(each.by_category, 12),
            num_by_temperature=dict.fromkeys(each.by_temperature, 32),
        )
        for each in results.acceptance
    )
    return replace(results, acceptance=found)


def test_every_part_is_shown_with_its_n() -> None:
    first = str(acceptance_section(counted()))
    assert "temperature 0, n=32" in first
    assert "(n=32)" in first
    second = str(category_section(counted()))
    assert second.count(", n=12") == 5 * 8, "five proposers, eight categories"
    assert "<td>12</td>" in second


def test_results_of_before_have_none() -> None:
    """They were written without these counts."""
    assert "n=32" not in str(acceptance_section(sample_results()))
    assert "–" in str(category_section(sample_results()))

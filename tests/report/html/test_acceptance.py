from __future__ import annotations

from dataclasses import replace

from outdraft.report.html.acceptance import acceptance_section, category_section
from outdraft.testing.sample_results import sample_results
from outdraft.tune.results import Results


def with_counts(each: int) -> Results:
    """So many requests of every part; 0: none are known."""
    results = sample_results()
    found = tuple(
        replace(
            one,
            num_by_category=dict.fromkeys(one.by_category, each) if each else {},
            num_by_temperature=dict.fromkeys(one.by_temperature, each) if each else {},
        )
        for one in results.acceptance
    )
    return replace(results, acceptance=found)


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

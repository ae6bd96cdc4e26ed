from __future__ import annotations

from dataclasses import replace

from outdraft.decide.texts import Agreement, Difference
from outdraft.report.sections.texts import texts_section
from outdraft.tune.results import Results
from tests.report.odd_results import SCRIPT, nothing_measured
from tests.report.sample_results import sample_results

JUNK = Agreement(
    24, 0, (0,) * 24, Difference(SCRIPT, SCRIPT, 0, f"def {SCRIPT}\n  x", f"\x1b[31m{SCRIPT}")
)


def with_best(texts: Agreement, **fields: Agreement | None) -> Results:
    """The sample, its best arm under the main load with these texts."""
    results = sample_results()
    main = results.main
    assert main is not None
    arms = tuple(
        replace(arm, texts=texts) if arm.name == main.best else replace(arm, texts=None)
        for arm in main.arms
    )
    load = replace(main, arms=arms, **fields)
    return replace(results, loads=(load,))


def test_agreement_floor_and_places() -> None:
    section = texts_section(sample_results())
    assert "off, sent again" in section
    assert "15 of 16" in section
    assert "139 of 140" in section
    assert "140 of 140" in section, "this one begins alike"
    assert "not clearly fewer than the floor" in section
    assert "all the same" in section
    assert "Prompt code-017 (code), from character 211 on" in section
    assert "return <b>None</b>" in section
    assert "return <b>[]</b>" in section
    assert section.count("<details") == 2, "other loads are folded"


def test_junk_is_named_and_stays_text() -> None:
    section = texts_section(with_best(JUNK, text_floor=Agreement(16, 16)))
    assert "✕ clearly other texts" in section
    assert "0 of 24" in section
    assert "<script" not in section
    assert "\x1b" not in section
    assert "✕ most differ" in texts_section(with_best(JUNK, text_floor=None))
    few = Agreement(24, 23, (70,))
    assert "the floor was not measured" in texts_section(with_best(few, text_floor=None))


def test_a_lossy_rule_differs_by_design() -> None:
    results = with_best(JUNK)
    main = results.main
    assert main is not None
    arms = tuple(
        replace(arm, speculation=replace(arm.speculation, rule="typical")) for arm in main.arms
    )
    section = texts_section(replace(results, loads=(replace(main, arms=arms),)))
    assert "differ by design" in section
    assert "✕" not in section


def test_no_texts() -> None:
    assert "No texts were compared" in texts_section(nothing_measured())

from __future__ import annotations

import re
from dataclasses import replace

from outdraft.report.sections.run import arms_section, pruned_section, run_section
from tests.report.odd_results import single_arm
from tests.report.sample_results import sample_results


def test_the_main_load_is_open_and_best_comes_before_the_rest() -> None:
    section = arms_section(sample_results())
    assert section.count("<details open>") == 1
    states = "1 baseline, 1 best, 3 raced, 4 dropped, 1 profiled, 5 predicted"
    assert f"concurrency 4: {states}" in section
    states = re.findall(r'<td class="short">(?:★ )?(\w+)</td>', section.partition("<summary>")[2])
    assert states[:5] == ["baseline", "best", "raced", "raced", "raced"]


def test_many_unmeasured_arms_are_folded() -> None:
    section = arms_section(sample_results())
    shown, _, folded = section.partition("<summary>5 arms that were not measured")
    assert "predicted slower than the best" not in shown.rpartition("<details open>")[2]
    assert folded.partition("</details>")[0].count("predicted slower than the best") == 5


def test_the_star_is_for_what_is_recommended() -> None:
    results = sample_results()
    section = arms_section(results)
    assert section.count("★ best") == 2
    assert "★" not in arms_section(replace(results, main_load="concurrency 16"))


def test_an_interval_has_its_level_where_that_is_not_95_percent() -> None:
    results = sample_results()
    load = results.loads[0]
    assert "95\N{NO-BREAK SPACE}%<" not in arms_section(results)
    arms = tuple(
        arm if arm.measured is None else replace(arm, measured=replace(arm.measured, level=0.9875))
        for arm in load.arms
    )
    changed = replace(results, loads=(replace(load, arms=arms),))
    assert "] 99\N{NO-BREAK SPACE}%<" in arms_section(changed)


def test_settings_are_flat_and_plain() -> None:
    section = run_section(sample_results())
    assert "<dt>slo ttft</dt><dd>500</dd>" in section
    assert "<dt>methods</dt><dd>ngram, suffix, draft_model, eagle</dd>" in section
    assert run_section(single_arm()).count("Not recorded.") == 2


def test_pruned_candidates_have_a_reason() -> None:
    assert "other tokenizer than the target&#x27;s" in pruned_section(sample_results())
    assert "None: " in pruned_section(single_arm())

from __future__ import annotations

import re
from dataclasses import replace

from outdraft.plan.findings import Check
from outdraft.report.sections.checks import checks_section
from outdraft.tune.results import FROM_COUNTERS
from tests.report.odd_results import nothing_measured, one_load_failed
from tests.report.sample_results import sample_results


def test_failures_first_then_warnings() -> None:
    results = sample_results()
    main = results.main
    assert main is not None
    assert main.verdict is not None
    states = ("ok", "warn", "fail", "warn", "ok")
    checks = tuple(
        Check(f"check_{n}", 0.5, "at least 1", state, "do it") for n, state in enumerate(states)
    )
    load = replace(main, verdict=replace(main.verdict, checks=checks))
    section = checks_section(replace(results, loads=(load,)))
    assert re.findall(r'class="state (\w+)"', section) == ["fail", "warn", "warn", "ok", "ok"]
    assert "check 2" in section
    assert "✕" in section, "a state is shown without colour, too"
    assert "n=240 pairs" in section


def test_other_loads_are_folded() -> None:
    section = checks_section(sample_results())
    assert section.count("<details") == 2
    assert "There was nothing to check." in checks_section(nothing_measured())


def test_checks_of_other_loads_are_shown_where_the_main_one_has_none() -> None:
    results = one_load_failed()
    failed = results.loads[-1]
    assert failed.verdict is None
    section = checks_section(replace(results, main_load=failed.name))
    assert f"At {results.loads[0].name}, n=" in section
    assert section.count("<table") == 2


def test_what_counters_cannot_tell_is_said() -> None:
    results = sample_results()
    main = results.main
    assert main is not None
    arms = tuple(replace(each, acceptance_source=FROM_COUNTERS) for each in main.arms)
    section = checks_section(replace(results, loads=(replace(main, arms=arms),)))
    assert "that needs the acceptance of each answer" in section
    assert "that needs the acceptance of each answer" not in checks_section(results)

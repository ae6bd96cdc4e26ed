"""The figures that are shown of a search while it goes on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import FINAL, SCHEDULE, Load, name_of
from outdraft.tune.journal import Journal
from outdraft.tune.progress import FiguresCache, figures_of
from outdraft.tune.rules import Objective, Rules, SearchSettings

from .test_race import block

ARM = Speculation("ngram", k=4)
LOAD = Load(concurrency=1)
SETTINGS = SearchSettings((ARM,), (LOAD,), Rules(Objective()), 1e6)


def test_a_final_with_as_many_blocks_as_the_race_has_figures_of_its_own(tmp_path: Path) -> None:
    """Those of the race were shown: 1.50x, and off as fast as it was there."""
    final, cache = LOAD.in_part(FINAL, name_of(ARM)).name, FiguresCache()
    show = partial(figures_of, SETTINGS, FINAL, LOAD, ARM)
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for arm, speed in ((OFF, 1.0), (ARM, 1.5)):
            journal.add(block(arm, 0, speed))
        raced = show(journal, cache)
        journal.add(replace(block(OFF, 0, 2.0), load=final))
        alone = show(journal, cache)
        journal.add(replace(block(ARM, 0, 2.2), load=final))
        judged = show(journal, cache)
    speeds = [(each["off"].tokens_per_s or 0.0) for each in (raced, alone, judged)]
    assert speeds[1:] == pytest.approx([2 * speeds[0]] * 2)
    assert alone[name_of(ARM)] == raced[name_of(ARM)], "it has no block of the final yet"
    ratios = [each[name_of(ARM)].measured for each in (raced, judged)]
    assert [each.estimate for each in ratios if each] == pytest.approx([1.5, 1.1])


def test_a_schedule_is_shown_with_its_own_figures(tmp_path: Path) -> None:
    part = LOAD.in_part(SCHEDULE, name_of(ARM)).name
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for arm, raced, scheduled in ((OFF, 1.0, 2.0), (ARM, 1.5, 2.4)):
            journal.add(block(arm, 0, raced))
            journal.add(replace(block(arm, 0, scheduled), load=part))
        shown = figures_of(SETTINGS, SCHEDULE, LOAD, ARM, journal, FiguresCache())
    measured = shown[name_of(ARM)].measured
    assert measured is not None
    assert measured.estimate == pytest.approx(1.2)


def test_a_final_in_visits_has_no_ratio_yet(tmp_path: Path) -> None:
    """Its interval would lack what visits differ by."""
    final = LOAD.in_part(FINAL, name_of(ARM)).name
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        for arm in (OFF, ARM):
            journal.add(block(arm, 0))
            journal.add(replace(block(arm, 0), load=final))
        visited = replace(SETTINGS, shares_process=False)
        assert visited.in_visits
        shown = [
            figures_of(settings, phase, LOAD, ARM, journal, {})
            for settings, phase in ((visited, FINAL), (visited, "race"), (SETTINGS, FINAL))
        ]
    assert [each[name_of(ARM)].measured is None for each in shown] == [True, False, False]

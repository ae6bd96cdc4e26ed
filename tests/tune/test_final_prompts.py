"""What is said of the prompts of a final: the page, the line and the note have one count."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.report.sections.run import arms_section
from outdraft.report.tables import tune_table
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import FINAL, Load, name_of
from outdraft.tune.final_prompts import measured_anew, other_prompts, prompt_notes
from outdraft.tune.journal import Block, Journal
from outdraft.tune.judging import judge
from outdraft.tune.outcome import load_result
from outdraft.tune.race import Standing
from outdraft.tune.results import LoadResult, results_from_json
from outdraft.tune.rules import Objective, Rules, SearchSettings
from tests.report.sample_results import sample_results

from .test_race import block

ARM, RIVAL = Speculation("ngram", k=4), Speculation("ngram", k=6)
LOAD = Load(concurrency=16)
SETTINGS = SearchSettings((ARM, RIVAL), (LOAD,), Rules(Objective()), 1e6)
ANEW = "The best arm was measured anew after it was chosen"
SHARED = f"{ANEW}. Of the prompts of that final, the race had"
HIGHEST = "highest of several figures is likely to be too high."


def judged(path: Path, num_shared: int) -> LoadResult:
    """Five blocks of the final, of which each has eight prompts of its own but those shared."""
    final = LOAD.in_part(FINAL, name_of(ARM)).name
    with Journal(path / "journal.jsonl", {}) as journal:
        for arm, speed in ((OFF, 1.0), (ARM, 1.2), (RIVAL, 1.5)):
            journal.add(replace(block(arm, 0, speed), load=LOAD.name))
        for number in range(5):
            for arm, speed in ((OFF, 1.0), (ARM, 1.2)):
                first = block(arm, number, speed)
                records = [
                    each if each.index < num_shared
                    else replace(each, prompt_id=f"new {number} {each.index}")
                    for each in first.records
                ]  # fmt: skip
                journal.add(replace(first, load=final, records=tuple(records)))
        blocks: dict[str, list[Block]] = {
            name_of(arm): journal.of(final, name_of(arm)) for arm in (OFF, ARM)
        }
        verdict = judge(ARM, blocks, {}, SETTINGS.rules).verdict
        return load_result(SETTINGS, LOAD, Standing(best=ARM, verdict=verdict), journal)


@pytest.mark.parametrize(
    ("num_shared", "num", "anew", "higher"),
    [
        (0, 40, f"{ANEW}, on other prompts.", f"The final had other prompts, and the {HIGHEST}"),
        (4, 24, f"{SHARED} 4 of 24 at concurrency 16 too.",
         f"Of the 24 prompts of the final 20 were not in the race, and the {HIGHEST}"),
        (8, 8, f"{SHARED} 8 of 8 at concurrency 16 too.", f"The {HIGHEST}"),
    ],
)  # fmt: skip
def test_page_line_and_note_have_one_count(
    tmp_path: Path, num_shared: int, num: int, anew: str, higher: str
) -> None:
    """ "On other requests", said the page, and a note that all of their prompts were the same."""
    load = judged(tmp_path, num_shared)
    results = replace(sample_results(), loads=(load,), main_load=load.name)
    assert anew in arms_section(results).replace("&#x27;", "'")
    (line,) = (each for each in tune_table(results).splitlines() if each.startswith("higher: "))
    assert line.endswith(f"in the final. {higher}")
    notes = [each for each in prompt_notes(load) if "were in the race too" in each]
    used = f"concurrency 16: {num_shared} of the {num} prompts of the final were in the race too"
    assert [each.partition(": the arm was")[0] for each in notes] == [used] * bool(num_shared)
    few = any("8 different prompts" in each for each in prompt_notes(load))
    assert few == (num == 8)
    read = results_from_json({**results.to_json(), "loads": [results.to_json()["loads"][0]]})
    assert read.loads[0].prompts == load.prompts


def test_results_of_before_do_not_say_on_which_prompts(tmp_path: Path) -> None:
    load = replace(judged(tmp_path, 8), prompts=None)
    assert measured_anew([load]) == f"{ANEW}."
    assert (other_prompts(load), list(prompt_notes(load))) == ("", [])
    assert measured_anew([replace(load, verdict=None)]) == "", "nothing was judged"

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from outdraft.report.sections.verdict import FILES, verdict_card
from outdraft.tune.results import Results
from tests.report.odd_results import all_inconclusive, nothing_measured
from tests.report.sample_results import sample_results


def text_of(results: Results, files: list[str] | None = None) -> str:
    card = verdict_card(results, files or [])
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", card).split()))


def at(load: str) -> Results:
    return replace(sample_results(), main_load=load)


def test_a_win() -> None:
    text = text_of(at("concurrency 4"), ["vllm.sh", "results.json", "other.txt"])
    assert (
        "SHIP at 4 requests at a time Turn it on up to 8 requests at a time; off above "
        "smollm2-135m on the embedded backend" in text
    )
    assert (
        "best: draft_model smollm2-135m-draft k=4 int8 · 1.97x [1.93, 2.02] over off at "
        "4 requests at a time · acceptance 0.62 · SHIP · turn it on up to 8 requests at a time; "
        "off above" in text
    )
    assert "1.97× [1.93, 2.02] n=240 in 20 blocks, 95 % interval" in text.replace("\u00a0", " ")
    assert "22.9 → 11.7 ms off n=240, best n=240" in text
    assert "Beside this page: results.json every number of this page" in text
    assert (
        "For engines that were not measured (the settings carry over, the gain may not): "
        "vllm.sh starts vLLM" in text
    )
    assert "other.txt" not in text
    assert "8 parts of the traffic" in text


def test_a_loss_says_that_the_files_leave_it_off() -> None:
    text = text_of(at("concurrency 16"), ["vllm.sh"])
    assert (
        "DON'T SHIP at 16 requests at a time Leave it off: it does not pay at 16 requests at a time"
        in text
    )
    assert "with speculation left off: vllm.sh" in text
    assert "with speculation left off" not in text_of(at("concurrency 16"), ["results.json"])


def test_a_part_of_the_traffic() -> None:
    results = sample_results()
    main = results.main
    assert main is not None
    assert main.verdict is not None
    verdict = replace(
        main.verdict, decision="SHIP FOR", ship_for=("category code",), losers=("category chat",)
    )
    loads = tuple(replace(each, verdict=verdict) for each in results.loads)
    text = text_of(replace(results, loads=loads), ["vllm.sh"])
    assert "SHIP FOR at 4 requests at a time Turn it on" in text
    whole = "This mix wins as a whole, the most with category code; category chat loses by it."
    assert whole in text
    assert "off above; category chat loses by it" in text
    everywhere = verdict_card(replace(results, loads=loads[1:2], schedule=()), [])
    assert "Turn it on: it pays at 4 requests at a time; category chat loses by it" in everywhere
    assert 'class="card part"' in everywhere, "not the card of a gain for all"
    assert "with speculation left off" not in text
    assert "Route the parts" not in text, "the files turn it on for all of it"
    even = tuple(replace(each, verdict=replace(verdict, whole_wins=False)) for each in loads)
    text = text_of(replace(results, loads=even), ["vllm.sh"])
    assert "with speculation left off: vllm.sh" in text, "the whole was not shown to win"
    only = "Turn it on for category code only, at 4 requests at a time; off for the mix"
    assert only in text
    assert "Route the parts named above to a server with speculation on" in text


def test_nothing_proven() -> None:
    text = text_of(all_inconclusive())
    said = "Not proven either way at any load measured: leave it off"
    assert f"INCONCLUSIVE at 4 requests at a time {said}" in text
    assert "The time budget ended before all of it was clear" in text
    assert "about 420 more requests would make it clear" in text


def test_nothing_measured() -> None:
    text = text_of(nothing_measured())
    assert "Nothing could be measured" in text
    assert "The table of all arms says why each one failed" in text
    assert text_of(replace(sample_results(), main_load="nowhere")).count("INCONCLUSIVE") == 1


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_a_link(name: str) -> None:
    assert f'<a href="{name}">' in verdict_card(sample_results(), [name])

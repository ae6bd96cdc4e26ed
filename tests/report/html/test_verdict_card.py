from __future__ import annotations

import re
from dataclasses import replace
from html import unescape

import pytest

from outdraft.report.html.verdict_card import FILES, verdict_card
from outdraft.testing.odd_results import all_inconclusive, nothing_measured
from outdraft.testing.sample_results import sample_results
from outdraft.tune.results import Results


def text_of(results: Results, files: list[str] | None = None) -> str:
    card = verdict_card(results, files or [])
    return unescape(" ".join(re.sub(r"<[^>]+>", " ", card).split()))


def at(load: str) -> Results:
    return replace(sample_results(), main_load=load)


def test_a_win() -> None:
    told = text_of(at("concurrency 4"), ["vllm.sh", "results.json", "other.txt"])
    assert "SHIP Turn speculation on smollm2-135m on the embedded backend" in told
    assert (
        "best: draft_model smollm2-135m-draft k=4 int8 · 1.97x [1.93, 2.02] over off · "
        "acceptance 0.62 · SHIP" in told
    )
    assert "1.97× [1.93, 2.02] n=240 in 20 blocks, 95 % interval" in told.replace("\u00a0", " ")
    assert "22.9 → 11.7 ms off n=240, best n=240" in told
    assert "vllm.sh starts vLLM results.json" in told
    assert "other.txt" not in told
    assert "8 parts of the traffic" in told


def test_a_loss_says_that_the_files_leave_it_off() -> None:
    told = text_of(at("concurrency 16"), ["vllm.sh"])
    assert "DON'T SHIP Leave speculation off" in told
    assert "with speculation left off: vllm.sh" in told
    assert "with speculation left off" not in text_of(at("concurrency 16"), ["results.json"])


def test_a_part_of_the_traffic() -> None:
    results = sample_results()
    main = results.main
    assert main is not None
    verdict = {**(main.verdict or {}), "decision": "SHIP FOR", "ship_for": ["category code"]}
    loads = tuple(replace(each, verdict=verdict) for each in results.loads)
    told = text_of(replace(results, loads=loads))
    assert "Turn speculation on for a part of the traffic: category code" in told
    assert "send the parts named above to a server of their own" in told
    assert "with speculation left off" not in text_of(replace(results, loads=loads), ["vllm.sh"])
    even = tuple(
        replace(each, arms=tuple(replace(arm, ratios={}) for arm in each.arms)) for each in loads
    )
    told = text_of(replace(results, loads=even), ["vllm.sh"])
    assert "with speculation left off: vllm.sh" in told, "the whole was not shown to win"


def test_nothing_proven() -> None:
    told = text_of(all_inconclusive())
    assert "INCONCLUSIVE Not proven either way" in told
    assert "The budget ended before all was clear" in told
    assert "about 420 more requests would make it clear" in told


def test_nothing_measured() -> None:
    told = text_of(nothing_measured())
    assert "Nothing could be measured" in told
    assert "Every arm below says why it failed" in told
    assert text_of(replace(sample_results(), main_load="nowhere")).count("INCONCLUSIVE") == 1


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_a_link(name: str) -> None:
    assert f'<a href="{name}">' in verdict_card(sample_results(), [name])

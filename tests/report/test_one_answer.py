"""Headline, strip, table, star, schedule, last line, files and JSON say one thing, whatever the
results are."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from html import unescape

import pytest
from hypothesis import given

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import SHIP_FOR, decide
from outdraft.report.page import page
from outdraft.report.tables import best_line, tune_table
from outdraft.speculation import OFF, Speculation, scheduled_k
from outdraft.stats.ratios import Ratio
from outdraft.tune.answer import (
    Finding,
    LoadAnswer,
    RangeAnswer,
    Recommendation,
    all_failed,
    answer_of,
)
from outdraft.tune.arm import proposer_name
from outdraft.tune.files import own_config
from outdraft.tune.results import FAILED, PREDICTED, Results, results_from_json
from outdraft.tune.rivals import measured_higher, why_not_higher
from outdraft.tune.wording import answer_json, details, does_text, headline, results_json
from tests.report.sample_results import ratio_about, sample_results
from tests.report.walked_results import walked

# What people read on pages that said two things at once; none of it may come back.
QUOTED = (
    "Turn speculation on",
    "wins at every load measured",
    "no crossover",
    "predicted: predicted",
    "predicted behind",
    "of at most",
    "Every arm below says why",
    "1 others",
    " 1 blocks",
    "could be measured against off",
)


def text_of(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@given(walked())
def test_the_headline_is_the_same_everywhere(results: Results) -> None:
    answer = answer_of(results)
    said, shown = headline(answer), page(results)
    [title] = re.findall(r'<h1 id="verdict-title">(.*?)</h1>', shown)
    assert unescape(title) == said
    lowered = said[0].lower() + said[1:]
    assert f" · {lowered}" in best_line(results)
    assert best_line(results) in text_of(shown)
    assert f"# {said}" in own_config(results, answer.settings)
    assert answer_json(results)["headline"] == said
    for sentence in details(answer):
        assert sentence in text_of(shown)
        assert f"range: {sentence}" in tune_table(results)


@given(walked())
def test_on_is_only_where_it_was_proven_and_where_the_settings_are_on(results: Results) -> None:
    answer = answer_of(results)
    for each in answer.loads:
        proven = each.load.pays_for_all and each.load.best_arm is not None
        assert proven or not each.is_on or each.finding is Finding.UNMEASURED
    is_on = any(each.is_on for each in answer.measured)
    assert answer.is_on == is_on == (not answer.settings.is_off)
    everywhere = is_on and all(each.is_on for each in (*answer.measured, *answer.bands))
    whole = (Recommendation.ON, Recommendation.ON_THOUGH)
    assert (answer.advice in whole) == everywhere


@given(walked())
def test_what_is_said_of_a_load_is_what_the_written_settings_do_there(results: Results) -> None:
    """Where nothing switches them, a sentence says at which loads they stay on."""
    answer, told = answer_of(results), details(answer_of(results))
    serve = tomllib.loads(own_config(results, answer.settings))["serve"]
    written = OFF
    if "speculative_config" in serve:
        written = Speculation.from_mapping(json.loads(serve["speculative_config"]))
    for each in answer.loads:
        at = each if answer.has_schedule else answer.main  # or the main load's everywhere
        assert at is not None
        assert each.settings_k == written.k_at(at.load.concurrency or 1)
        if each.is_on or not each.settings_k:
            assert each.k == written.k_at(each.load.concurrency or 1)
        else:
            [said] = [sentence for sentence in told if "and stay on at " in sentence]
            assert _names(said.partition(" stay on at ")[2], each) or " loads from " in said
    unproven = [each for each in answer.loads if each.is_on and each.finding is Finding.UNMEASURED]
    assert any("the settings are on there too" in each for each in told) == bool(unproven)
    for each in unproven:
        assert does_text(each).endswith("not measured")


@given(walked())
def test_on_for_all_is_never_said_of_a_mix_that_loses(results: Results) -> None:
    answer, shown = answer_of(results), page(results)
    for each in answer.loads:
        if not each.is_on or each.load.best_arm is None:
            continue
        ratios = each.load.best_arm.ratios
        assert (ratios["e2e"].low or 0) > 1.01
        losing = [name for name in ("throughput", "total", "p99") if _loses(ratios, name)]
        if each.load.concurrency in (None, 1):  # the times say it
            losing = [name for name in losing if name != "throughput"]
        assert not losing
        verdict = each.load.verdict
        assert verdict is not None
        if verdict.decision == SHIP_FOR:
            assert 'class="card part"' in shown
            assert re.search(r" los(e|es) by it$", headline(answer)), headline(answer)
            if each is answer.main and verdict.losers:
                assert any(verdict.losers[0] in sentence for sentence in details(answer))


@pytest.mark.parametrize("losing", ["throughput", "total", "p99"])
def test_a_mix_that_gains_for_most_and_loses_as_a_whole_stays_off(losing: str) -> None:
    """It was "turn it on: it pays" beside 1.08 end to end and 0.93 in throughput."""
    ratios = dict.fromkeys(("throughput", "total", "p99"), ratio_about(1.05, 0.02, 20))
    ratios[losing] = ratio_about(0.9, 0.03, 20)
    gain, loss = ratio_about(1.6, 0.02, 20), ratio_about(0.7, 0.02, 20)
    evidence = Evidence(
        e2e=ratio_about(1.08, 0.03, 20),
        **ratios,
        by_category={"code": gain, "chat": loss},
        tpot_by_part={"category code": gain},
        concurrency=4,
        has_idle_slots=False,
    )
    results = sample_results()
    load = results.loads[1]
    assert load.concurrency == 4
    arms = tuple(
        replace(arm, measured=evidence.e2e, ratios={"e2e": evidence.e2e, **ratios})
        if arm.name == load.best and evidence.e2e is not None
        else arm
        for arm in load.arms
    )
    judged = replace(load, verdict=decide(evidence), arms=arms)
    results = replace(results, loads=(judged,), schedule=())
    answer = answer_of(results)
    assert headline(answer) == (
        "Turn it on for category code only, at 4 requests at a time; off for the mix"
    )
    assert "speculative_config" not in own_config(results, answer.settings)
    assert 'class="card part"' in page(results)


def _loses(ratios: Mapping[str, Ratio], name: str) -> bool:
    high = ratios[name].high if name in ratios else None
    return high is not None and high < 0.99


@given(walked())
def test_why_a_schedule_is_not_used_agrees_with_the_headline(results: Results) -> None:
    answer = answer_of(results)
    said = f"{headline(answer)} {answer.schedule_fault}"
    assert not ("Not proven either way" in said and "it does not pay" in said)
    finding = Finding.UNMEASURED if answer.main is None else answer.main.finding
    assert ("it does not pay at the first" in said) <= (finding is Finding.LOSES)


@given(walked())
def test_every_speedup_in_text_has_an_interval_or_says_that_it_has_none(results: Results) -> None:
    for said in (best_line(results), tune_table(results)):
        for match in re.finditer(r"\d\.\d\dx(?= over off| \[)(.{0,4})", said):
            assert match[1].startswith(" ["), said


@given(walked())
def test_a_schedule_that_is_drawn_is_followed_or_said_to_be_unused(results: Results) -> None:
    answer, shown = answer_of(results), page(results)
    figures = re.findall(r"<h3>Schedule</h3><p>(.*?)</p>", shown)
    has_plots = any(load.measured is not None for load in results.loads)
    assert len(figures) == bool(results.schedule and has_plots)
    unused = [f"Not used: {answer.schedule_fault}."] if answer.schedule_fault else []
    assert [unescape(each) for each in figures if each.startswith("Not used")] == unused[
        : len(figures)
    ]
    if results.schedule and not answer.schedule_fault:
        for each in answer.measured:
            k = scheduled_k(results.schedule, each.load.concurrency or 1)
            assert bool(k) == each.is_on


@given(walked())
def test_the_headline_names_the_range_in_which_it_is_on(results: Results) -> None:
    answer = answer_of(results)
    said = headline(answer)
    if answer.advice is Recommendation.ON_IN_RANGE and answer.bands:
        is_on = meaning(said)
        assert [is_on(running) for running in range(1, 100)] == [
            answer.settings.k_at(running) > 0 for running in range(1, 100)
        ], said
    elif answer.advice is Recommendation.ON_IN_RANGE:
        on, _, off = said.partition("; off ")
        assert any(_names(on, each) for each in answer.measured if each.is_on)
        assert any(_names(off, each) for each in answer.decided if not each.is_on)
    elif answer.advice is not Recommendation.ON_FOR_PARTS:
        whole = (Recommendation.ON, Recommendation.ON_THOUGH)
        assert said.startswith("Turn it on: it pays at ") == (answer.advice in whole)
        assert said.endswith("leave it off") or said.startswith(("Leave it off", "Turn it on: "))


def meaning(said: str) -> Callable[[int], bool]:
    """The numbers of running requests at which a headline says that it is on."""
    on, _, off = said.removeprefix("Turn it on ").partition("; off ")
    off = off.partition("; ")[0]
    if found := re.fullmatch(r"up to (\d+) requests? at a time", on):
        assert off == "above"
        return lambda running: running <= int(found[1])
    if found := re.fullmatch(r"from (\d+) requests at a time on", on):
        assert off == "below"
        return lambda running: running >= int(found[1])
    found = re.fullmatch(r"with (.*) requests at a time", on)
    assert found is not None, said
    parts = re.split(r", | and ", found[1])

    def is_on(running: int) -> bool:
        for part in parts:
            low, *high = (int(each) for each in re.findall(r"\d+", part))
            top = 10**6 if part.endswith("or more") else high[0] if high else low
            if low <= running <= top:
                return True
        return False

    return is_on


def _names(words: str, answer: LoadAnswer) -> bool:
    size = f"{answer.load.concurrency or answer.load.rate:g}"
    return size in re.findall(r"[\d.]+", words)


@given(walked())
def test_the_place_of_a_switch_is_said_to_be_in_between(results: Results) -> None:
    answer = answer_of(results)
    told = [each for each in details(answer) if each.startswith("The switch lies between ")]
    changes = [
        (below, above)
        for below, above in zip(answer.measured, answer.measured[1:], strict=False)
        if below.is_on != above.is_on
    ]
    assert len(told) == len(changes)
    for sentence, both in zip(told, changes, strict=True):
        assert all(_names(sentence, each) for each in both)
        assert "only these were measured" in sentence
    if answer.advice is Recommendation.ON_IN_RANGE and not answer.settings.schedule:
        assert any(each.startswith("The engine does not switch") for each in details(answer))


@given(walked())
def test_tables_and_strip_show_what_is_recommended_at_each_load(results: Results) -> None:
    answer, shown = answer_of(results), page(results)
    strip = re.findall(
        r'<li class="(on|off|unsure)"><span class="at">.*?</span><b>(.*?)</b>', shown
    )
    proven = {each.load.name for each in answer.measured}
    states = {True: "on", False: "off"}
    wanted = [
        (
            "unsure" if each.is_on and each.load.name not in proven else states[each.is_on],
            does_text(each),
        )
        for each in answer.loads
    ]
    assert strip == (wanted if len(wanted) > 1 else [])
    section = shown.partition('id="loads"')[2].partition("</section>")[0]
    rows = re.findall(r'<th class="short" scope="row">([^<]*)</th><td class="short"><b>(.*?)</b>',
                      section)  # fmt: skip
    assert rows == [(load.name, does_text(answer.at(load))) for load in results.loads]
    said = re.findall(r"recommended here: (.*)", tune_table(results))
    assert said == [does_text(answer.at(load)) for load in results.loads]


@given(walked())
def test_the_star_is_on_what_is_recommended_and_nowhere_else(results: Results) -> None:
    answer, shown = answer_of(results), page(results)
    for each in answer.loads:
        if each.arm is not None:
            [arm] = [arm for arm in each.load.arms if arm.name == each.arm]
            assert arm.speculation.k == answer.settings.k_at(each.load.concurrency or 1)
            assert proposer_name(arm.speculation) == _proposer(answer)
    starred = [each for each in answer.loads if each.arm is not None]
    cells = re.findall(r'<td class="[^"]*\bbest\b[^"]*"', shown)
    rows = re.findall(r'<td class="short">★ ', shown)
    measured = [
        each
        for each in starred
        if any(arm.name == each.arm and arm.measured is not None for arm in each.load.arms)
    ]
    assert (len(cells), len(rows)) == (len(measured), len(starred))
    assert ("★" in shown) == bool(starred)
    assert len(re.findall(r"\* best|\* \w+", tune_table(results))) == len(starred)


def _proposer(answer: RangeAnswer) -> str:
    main = answer.main
    assert main is not None
    assert main.load.best_arm is not None
    return proposer_name(main.load.best_arm.speculation)


@given(walked())
def test_what_measured_higher_is_explained(results: Results) -> None:
    shown, table = text_of(page(results)), tune_table(results)
    for load in results.loads:
        said = why_not_higher(load)
        assert bool(said) == bool(measured_higher(load))
        for sentence in said:
            assert sentence in shown
            assert f"higher: {sentence}" in table
        for arm in measured_higher(load)[:1]:
            assert any(arm.name in sentence for sentence in said)


@given(walked())
def test_a_measured_cell_is_not_called_predicted_and_few_requests_look_unsure(
    results: Results,
) -> None:
    shown = page(results)
    cells = re.findall(r'<td class="((?:gain|loss)[^"]*)"[^>]*>(.*?)</td>', shown)
    for kind, cell in cells:
        is_measured = "n=" in cell
        assert is_measured == ("guess" not in kind.split())
        assert is_measured == ("predicted" not in cell)
        if "no interval" in cell:
            assert "unsure" in kind.split()
            assert "? " in cell
    for load in results.loads:
        for arm in load.arms:
            assert (arm.measured is None) or arm.fate != PREDICTED
            assert f"{arm.name} predicted n=" not in text_of(shown)


@given(walked())
def test_none_of_what_people_read_comes_back(results: Results) -> None:
    answer = answer_of(results)
    everything = "\n".join(
        (text_of(page(results)), tune_table(results), best_line(results),
         own_config(results, answer.settings), json.dumps(answer_json(results)))
    )  # fmt: skip
    for words in QUOTED:
        assert words not in everything, words
    card = re.findall(r'class="card (\w+)"', page(results))
    assert (card == ["ship"]) == (answer.advice is Recommendation.ON), "green means everywhere"
    if answer.advice is Recommendation.OUT_OF_TIME:
        assert "says why each one failed" not in everything
        has_failed = any(arm.state == FAILED for load in results.loads for arm in load.arms)
        assert has_failed or "could be measured" not in everything


@given(walked())
def test_the_answer_is_in_the_json_and_follows_from_the_rest(results: Results) -> None:
    written = json.loads(json.dumps(results_json(results)))
    again = results_from_json(written)
    assert again == results
    assert answer_json(again) == written["answer"]
    told = {each["load"]: each["k"] for each in written["answer"]["loads"]}
    assert told == {each.load.name: each.k for each in answer_of(results).loads}


@given(walked())
def test_it_is_not_on_where_all_arms_failed_or_above_a_loss(results: Results) -> None:
    answer = answer_of(results)
    assert not any(each.is_on for each in answer.loads if all_failed(each.load))
    for below, above in zip(answer.loads, answer.loads[1:], strict=False):
        if not answer.settings.schedule and below in answer.measured and not below.is_on:
            assert above in answer.measured or not above.is_on
    if answer.advice is Recommendation.ON:
        assert not any(all_failed(load) for load in results.loads)

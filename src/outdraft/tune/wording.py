"""The answer of a tuning run in words: a headline, and the sentences that belong to it. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from outdraft.stats.ratios import Ratio
from outdraft.tune.answer import (
    Band,
    Finding,
    LoadAnswer,
    RangeAnswer,
    Recommendation,
    WhyOff,
    all_failed,
    answer_of,
)
from outdraft.tune.results import LoadResult, Results

_MOST_NAMED = 4  # loads; of more the first and the last are named


def headline(answer: RangeAnswer) -> str:
    """What to do, at which loads; without a full stop."""
    main, measured = answer.main, answer.measured
    but = f"; {answer.losers}" if answer.losers else ""
    if answer.advice is Recommendation.ON_IN_RANGE:
        return f"Turn it on {_range(answer)}{but}"
    if answer.is_on:
        return f"Turn it on: it pays at {loads_text([each.load for each in measured])}{but}"
    here = "" if main is None else f" at {loads_text([main.load])}"
    if answer.advice is Recommendation.ON_FOR_PARTS:
        return f"Turn it on for {joined(_parts(main))} only,{here}; off for the mix"
    if _is_alike(answer):
        here = (
            " at any load"
            if answer.advice is Recommendation.UNMEASURED
            else " at any load measured"
        )
    if answer.advice is Recommendation.UNMEASURED:
        return f"Nothing could be measured{here}: leave it off"
    if answer.advice is Recommendation.OUT_OF_TIME:
        where = here if measured else ""
        return f"The time was over before anything was compared{where}: leave it off"
    if answer.advice is Recommendation.UNPROVEN:
        return f"Not proven either way{here}: leave it off"
    why = Finding.LOSES if main is None else main.finding
    return f"Leave it off: it {why}{here}"


def _is_alike(answer: RangeAnswer) -> bool:
    """Whether the same was found at all of several loads, so that one sentence says it."""
    return len(answer.loads) > 1 and len({each.finding for each in answer.loads}) == 1


def _parts(answer: LoadAnswer | None) -> tuple[str, ...]:
    """Of the traffic, that win."""
    verdict = None if answer is None else answer.load.verdict
    return () if verdict is None else verdict.ship_for


def details(answer: RangeAnswer) -> tuple[str, ...]:
    """What else has to be known, in whole sentences."""
    return (*_about_switches(answer), *_about_loads(answer), *_about_the_rest(answer))


def does_text(answer: LoadAnswer) -> str:
    """What is recommended at a load."""
    if answer.is_on:
        unsure = ", not measured" if answer.finding is Finding.UNMEASURED else ""
        return f"on, k={answer.k}{unsure}"
    return "off for the mix" if answer.finding is Finding.PARTS else "off"


def why_text(answer: LoadAnswer) -> str:
    """What that comes from, in a few words."""
    words = {
        WhyOff.PROPOSER: "another proposer pays",
        WhyOff.MAIN_LOAD: "pays here; the settings are for the first load",
        WhyOff.SCHEDULE: "by the schedule",
    }
    if answer.finding is Finding.WINS and answer.is_on:
        return "pays as a whole" if answer.load.losers else "pays"
    if answer.is_on:
        return "the settings are on here too"
    return words.get(answer.why_off, answer.finding.value)


def answer_json(results: Results) -> dict[str, Any]:
    """The answer as plain values, as `results.json` has it."""
    answer = answer_of(results)
    return {
        "headline": headline(answer),
        "details": list(details(answer)),
        "advice": answer.advice.value,
        "loads": [
            {
                "load": each.load.name,
                "finding": each.finding.value,
                "k": each.k,
                "settings_k": each.settings_k,
                "arm": each.arm,
                "best": each.load.best,
                "speedup": None if each.speedup is None else asdict(each.speedup),
                "why_off": each.why_off.value,
            }
            for each in answer.loads
        ],
        "switches": [
            {"between": [each.below.load.name, each.above.load.name], "after": each.at}
            for each in answer.switches
        ],
    }


def results_json(results: Results) -> dict[str, Any]:
    """Everything, with the answer. It is not read again: it follows from the rest."""
    return {**results.to_json(), "answer": answer_json(results)}


def loads_text(loads: Sequence[LoadResult]) -> str:
    """E.g. "1, 4 and 16 requests at a time"."""
    unit, values = "", [load.name for load in loads]
    if all(load.concurrency is not None for load in loads):
        values = [f"{load.concurrency}" for load in loads]
        unit = _at_a_time(values[-1] if len(loads) == 1 else "")
    elif all(load.rate is not None for load in loads):
        values = [f"{load.rate:g}" for load in loads]
        unit = " request/s" if values == ["1"] else " requests/s"
    if len(values) > _MOST_NAMED:
        return f"{len(values)} loads from {values[0]} to {values[-1]}{unit}"
    return f"{joined(values)}{unit}"


def speedup_text(ratio: Ratio | None) -> str:
    """In plain text, e.g. "1.83x [1.69, 1.98]"."""
    if ratio is None:
        return "not measured"
    interval = "no interval" if ratio.low is None else f"{ratio.low:.2f}, {ratio.high:.2f}"
    return f"{ratio.estimate:.2f}x [{interval}]"


def _range(answer: RangeAnswer) -> str:
    """Where it is on, and where off. A schedule has borders of its own; without one only the loads
    that something is known of are named."""
    if answer.bands:
        return _range_of_bands(answer.bands)
    runs = [
        (is_on, [each.load for each in members])
        for is_on, members in groupby(answer.decided, key=lambda each: each.is_on)
    ]
    if len(runs) == 2 and all(load.concurrency or load.rate for _, loads in runs for load in loads):
        (is_on, below), (_, above) = runs
        up_to, on = f"up to {loads_text(below[-1:])}", f"from {loads_text(above[:1])} on"
        return f"{up_to}; off {on}" if is_on else f"{on}; off {up_to}"
    on, off = (
        loads_text([each.load for each in answer.decided if each.is_on == is_on])
        for is_on in (True, False)
    )
    return f"at {on}; off at {off}"


def _range_of_bands(bands: Sequence[Band]) -> str:
    first, last = bands[0], bands[-1]
    if len(bands) == 2:
        if first.is_on:
            return f"up to {first.end}{_at_a_time(str(first.end))}; off above"
        return f"from {last.start} requests at a time on; off below"
    on, off = (
        joined([_band_text(each) for each in bands if each.is_on == is_on])
        for is_on in (True, False)
    )
    return f"with {on} requests at a time; off with {off}"


def _band_text(band: Band) -> str:
    if band.end is None:
        return f"{band.start} or more"
    return f"{band.start}" if band.start == band.end else f"{band.start} to {band.end}"


def _about_switches(answer: RangeAnswer) -> Iterator[str]:
    if not answer.is_on or answer.main is None:
        return
    for switch in answer.switches:
        both = loads_text([switch.below.load, switch.above.load])
        place = "" if switch.at is None else f"; the schedule puts it after {switch.at}"
        yield f"The switch lies between {both}: only these were measured{place}."
    measured = {switch.at for switch in answer.switches}
    if others := [f"{each.end}" for each in answer.bands[:-1] if each.end not in measured]:
        where = "on one side of that nothing was measured"
        yield f"The schedule switches after {joined(others)}; {where}."
    if answer.advice is Recommendation.ON_IN_RANGE and not (answer.bands and answer.has_schedule):
        main = loads_text([answer.main.load])
        on = [each.load for each in answer.stays_on]
        stay = f", and stay on at {loads_text(on)}" if on else ""
        yield f"The engine does not switch by itself: its settings are for {main}{stay}."


def _about_loads(answer: RangeAnswer) -> Iterator[str]:
    """Why it is off where it is, unless the headline says it."""
    others = [
        each
        for each in answer.loads
        if each.finding is Finding.UNMEASURED or not each.is_on
        if answer.is_on or not (each is answer.main or _is_alike(answer))
    ]
    for finding, words in (
        (Finding.LOSES, "It does not pay at {loads}."),
        (Finding.OTHER_TEXTS, "It writes other texts at {loads}."),
        (Finding.UNCLEAR, "Not proven at {loads}: it is off there."),
    ):
        if loads := [each.load for each in others if each.finding is finding]:
            yield words.format(loads=loads_text(loads))
    for is_on, but in ((False, ""), (True, "; the settings are on there too")):
        unmeasured = [
            each.load
            for each in others
            if each.finding is Finding.UNMEASURED and each.is_on == is_on
        ]
        if failed := [each for each in unmeasured if all_failed(each)]:
            yield f"Nothing could be measured at {loads_text(failed)}{but}."
        if late := [each for each in unmeasured if not all_failed(each)]:
            yield f"There was no time to compare anything at {loads_text(late)}{but}."
    for each in answer.loads:
        if each.is_on and each.load.losers and each is not answer.main:
            yield f"At {loads_text([each.load])} {each.load.losers}."
    for each in others:
        here = f"At {loads_text([each.load])}"
        pays = f"{each.load.best} pays, {speedup_text(each.speedup)}"
        if each.finding is Finding.PARTS:
            parts = _parts(each)
            win = "wins" if len(parts) == 1 else "win"
            yield f"{here} only {joined(parts)} {win}: it is off there for the mix."
        elif each.why_off is WhyOff.PROPOSER:
            yield f"{here} {pays}; one server runs one proposer, so it is off there."
        elif each.why_off is WhyOff.MAIN_LOAD and answer.main is not None:
            main = loads_text([answer.main.load])
            yield f"{here} {pays}; the settings are for {main}, the first load, so it stays off."
        elif each.why_off is WhyOff.SCHEDULE:
            yield f"{here} the schedule is off."


def _about_the_rest(answer: RangeAnswer) -> Iterator[str]:
    """What was not measured, a schedule that is not used, where to route parts of the traffic."""
    if answer.is_on:
        lowest, highest = answer.measured[0], answer.measured[-1]
        if lowest.is_on and lowest.load.concurrency != 1:
            yield f"Nothing below {loads_text([lowest.load])} was measured."
        if highest.is_on:
            yield f"Nothing above {loads_text([highest.load])} was measured."
    if answer.schedule_fault:
        yield f"There is a schedule, and it is not used: {answer.schedule_fault}."
    if answer.main is not None and (advice := answer.main.load.routing_advice):
        yield f"{advice[0].upper()}{advice[1:]}."


def _at_a_time(count: str) -> str:
    return " request at a time" if count == "1" else " requests at a time"


def joined(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))

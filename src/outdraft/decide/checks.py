"""Rules of thumb about speculation, as named checks. They explain and warn; they never decide."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import TextFinding, judge_texts
from outdraft.plan.findings import (
    FAIL,
    WARN,
    Check,
    Pairing,
    Shares,
    make_check,
    rules,
    size_ratio_check,
)
from outdraft.stats.ratios import Ratio

_OTHER = (
    "same as the target's",
    "a draft with another {name} guesses worse, or cannot be used at all",
)
# name → its threshold, and the advice for a value beyond it
_TEXTS = {
    "speedup": (
        "at least {limits.speedup:g}",
        "{small_gain}",
    ),
    "tail": ("P99 not clearly worse{interval}", "{slower}"),
    "ttft": (
        "first tokens not clearly later{interval}",
        "{later}{promised}",
    ),
    "acceptance": (
        "under {limits.low_acceptance:g} poor, over {limits.good_acceptance:g} good",
        "{advice}",
    ),
    "acceptance_p10": (
        "at least {limits.low_acceptance:g}",
        "one request in ten has a low acceptance rate; see acceptance by category and temperature",
    ),
    "output_length": (
        "at least {limits.short_output:g} tokens",
        "short answers spend most of their time on the prompt, which speculation does not speed up",
    ),
    "temperature": (
        "at most {limits.high_temperature:g}, not widely mixed",
        "temperatures are high or widely mixed; look at the speedup of each temperature band",
    ),
    "family": _OTHER,
    "tokenizer": _OTHER,
    "quantization": (
        "at most {limits.quantization_loss:g} of acceptance lost",
        "quantizing the draft costs more acceptance than its speed is worth; use more bits",
    ),
    "ceiling": (
        "at least 1; by time per token the speed is {measured:.2f} of the baseline's, with every "
        "draft token accepted it would be {best:.2f}",
        "a round costs so much that even perfect drafts would lose; shorten the draft length",
    ),
    "break_even": (
        "at least {needed:.2f}",
        "too few draft tokens are accepted to pay for the rounds at this load",
    ),
    "same_text": (
        "all of {same.num_compared} greedy texts identical",
        "{num_other} of them differ, {same.places}: near-ties in floating point, an acceptance "
        "rule that does not keep the target's text, or another model",
    ),
}

_SPLIT = (
    "requests get faster on average and the slowest ones get slower: the traffic is mixed; measure "
    "each category and temperature by itself, and switch speculation off for those that lose"
)
_NO_SPLIT = "the slowest requests get slower, and the average is not clearly better"

_WITHOUT_DRAFT = ("ngram", "suffix")
# What these checks advise, by what proposes: method, or "" where that is not known
_BY_METHOD = {
    "small_gain": {
        "draft_model": "the gain is small for the work of running a second model; try other draft "
        "lengths or a better draft",
        "eagle": "the gain is small for the work of keeping a head; try other draft lengths or a "
        "better head",
        "ngram": "the gain is small; try other draft lengths, or a method with a draft",
        "": "the gain is small for the work of keeping it; try other draft lengths or another "
        "method",
    },
    "later": {
        "draft_model": "the draft also has to read the prompt, which delays the first token",
        "eagle": "the head also has to read the prompt, which delays the first token",
        "ngram": "steps that verify drafts take longer, and a prompt waits for the one that runs",
        "": "a draft has to read the prompt too, and steps that verify take longer: both delay the "
        "first token",
    },
    "moderate": {
        "draft_model": "acceptance is moderate: a draft distilled on this traffic would raise it",
        "eagle": "acceptance is moderate: a head distilled on this traffic would raise it",
        "ngram": "acceptance is moderate: longer matches (--prompt-lookup-min) would raise it, and "
        "make drafts rarer",
        "suffix": "acceptance is moderate: a draft distilled on this traffic may do better",
        "": "acceptance is moderate: a draft distilled on this traffic may raise it",
    },
    "rejected": {
        "draft_model": "most draft tokens are rejected: try a shorter draft length or another "
        "draft",
        "eagle": "most draft tokens are rejected: try a shorter draft length or another head",
        "ngram": "most draft tokens are rejected: try a shorter draft length, or longer matches",
        "suffix": "most draft tokens are rejected: try a shorter draft length",
        "": "most draft tokens are rejected: try a shorter draft length or another way to draft",
    },
}


def _advice(name: str, method: str | None) -> str:
    texts = _BY_METHOD[name]
    key = method or ""
    return texts.get(key) or texts["ngram" if key in _WITHOUT_DRAFT else ""]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Those on memory and on the sizes of the two models are the plan's (`plan/findings.py`)."""

    speedup: float = 1.3  # of the mean; below it the gain may not be worth the trouble
    low_acceptance: float = 0.5
    good_acceptance: float = 0.65
    short_output: float = 50.0  # tokens
    high_temperature: float = 0.7
    wide_temperatures: float = 0.5  # between the lowest and the highest
    quantization_loss: float = 0.05


def run_checks(evidence: Evidence, limits: Thresholds) -> list[Check]:
    """All checks that the evidence has a value for."""
    return [
        *_speed(evidence, limits),
        *_acceptance(evidence.acceptance, limits, evidence.method),
        *_traffic(evidence, limits),
        *_pair(evidence.memory, evidence.pairing),
        *_cost(evidence, limits),
    ]


def _check(
    name: str, value: float | str, bad: bool, state: str = WARN, *, at: str = "", **words: Any
) -> Check:
    threshold, advice = (text.format(name=name, **words) for text in _TEXTS[name])
    return make_check(name + at, value, threshold, advice, is_bad=bad, state=state)


def _speed(evidence: Evidence, limits: Thresholds) -> Iterator[Check]:
    main, tail, ttft = evidence.e2e, evidence.p99, evidence.ttft
    if main is not None:
        words: dict[str, Any] = {"small_gain": _advice("small_gain", evidence.method)}
        is_small = main.estimate < limits.speedup
        yield _check("speedup", main.estimate, is_small, limits=limits, **words)
    if main is not None and tail is not None:
        is_worse = tail.high is not None and tail.high < 1
        is_split = main.low is not None and main.low > 1
        state, slower = (FAIL, _SPLIT) if is_split else (WARN, _NO_SPLIT)
        words = {"interval": _interval(tail), "slower": slower}
        yield _check("tail", tail.estimate, is_worse, state, **words)
    if ttft is not None:
        is_longer = ttft.high is not None and ttft.high < 1
        promised = "; the service promises a time to first token" if evidence.ttft_bound else ""
        state = FAIL if evidence.ttft_bound else WARN
        later = _advice("later", evidence.method)
        words = {"interval": _interval(ttft), "promised": promised, "later": later}
        yield _check("ttft", ttft.estimate, is_longer, state, **words)


def _interval(ratio: Ratio) -> str:
    return "" if ratio.low is None else f": speedup [{ratio.low:.2f}, {ratio.high:.2f}]"


def _acceptance(
    acceptance: AcceptanceSummary | None, limits: Thresholds, method: str | None
) -> Iterator[Check]:
    if acceptance is None:
        return
    state, advice = WARN, _advice("moderate", method)
    if acceptance.rate < limits.low_acceptance:
        state, advice = FAIL, _advice("rejected", method)
    is_bad = acceptance.rate <= limits.good_acceptance
    yield _check("acceptance", acceptance.rate, is_bad, state, limits=limits, advice=advice)
    if (p10 := acceptance.p10) is not None:
        yield _check("acceptance_p10", p10, p10 < limits.low_acceptance, limits=limits)


def _traffic(evidence: Evidence, limits: Thresholds) -> Iterator[Check]:
    if (tokens := evidence.mean_output_tokens) is not None:
        yield _check("output_length", tokens, tokens < limits.short_output, limits=limits)
    if evidence.temperatures:
        highest, lowest = max(evidence.temperatures), min(evidence.temperatures)
        is_wide = highest - lowest > limits.wide_temperatures
        value = highest if highest == lowest else f"{lowest:g} to {highest:g}"
        is_bad = highest > limits.high_temperature or is_wide
        yield _check("temperature", value, is_bad, limits=limits)


def _pair(memory: Shares | None, pairing: Pairing | None) -> Iterator[Check]:
    pairing = pairing or Pairing()
    if memory is not None:
        yield from rules(memory, has_draft=True)
    if pairing.size_ratio is not None:
        yield size_ratio_check(pairing.size_ratio)
    if (is_same := pairing.same_family) is not None:
        yield _check("family", "same" if is_same else "other", not is_same)
    if (is_same := pairing.same_tokenizer) is not None:
        yield _check("tokenizer", "same" if is_same else "other", not is_same, FAIL)


def _cost(evidence: Evidence, limits: Thresholds) -> Iterator[Check]:
    """What quantization costs, whether rounds pay (with every draft token accepted, and at this
    rate), and whether the text stays the same."""
    cost, acceptance, same = evidence.costs, evidence.acceptance, evidence.texts
    if evidence.unquantized_acceptance is not None and acceptance is not None:
        loss = evidence.unquantized_acceptance - acceptance.rate
        yield _check("quantization", loss, loss > limits.quantization_loss, limits=limits)
    if cost is not None and evidence.tpot is not None:
        best, measured = cost.ceiling, evidence.tpot.estimate
        words: dict[str, Any] = {"measured": measured, "best": best}
        yield _check("ceiling", best, best < 1, FAIL, **words)
    needed = None if cost is None else cost.break_even_rate
    if needed is not None and acceptance is not None:
        is_bad, at = acceptance.rate < needed, f" at {evidence.load}"
        yield _check("break_even", acceptance.rate, is_bad, FAIL, at=at, needed=needed)
    if same is not None and same.num_compared:
        num_other = same.num_compared - same.num_identical
        is_other = judge_texts(same, evidence.text_floor) is TextFinding.OTHER
        state = FAIL if is_other and not evidence.is_lossy else WARN
        yield _check("same_text", same.share, num_other > 0, state, same=same, num_other=num_other)

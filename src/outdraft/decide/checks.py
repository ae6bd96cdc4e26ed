"""The rules of thumb people use, as named checks. They explain and warn; they never decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from outdraft.decide.evidence import Acceptance, Costs, Evidence, Memory, Pairing
from outdraft.goodput import ceiling

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Thresholds:
    speedup: float = 1.3  # on the median; below it the trouble may not be worth it
    low_acceptance: float = 0.5
    good_acceptance: float = 0.65
    short_output: float = 50.0  # tokens
    hot: float = 0.7  # temperature
    wide: float = 0.5  # between the coldest and the hottest
    draft_memory: float = 0.15
    headroom: float = 0.20
    target_memory: float = 0.70
    smallest_ratio: float = 8.0
    largest_ratio: float = 12.0
    quantization_loss: float = 0.05


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    value: float | str | None
    threshold: str
    state: str  # ok, warn, fail
    advice: str  # empty when all is well


def run_checks(evidence: Evidence, limits: Thresholds) -> list[Check]:
    """Every check that the evidence has something for."""
    return [
        *_speed(evidence, limits),
        *_acceptance(evidence.acceptance, limits),
        *_traffic(evidence, limits),
        *_memory(evidence.memory, limits),
        *_pairing(evidence.pairing, limits),
        *_quantization(evidence, limits),
        *_ceiling(evidence.costs, evidence),
        *_break_even(evidence),
        *_equivalence(evidence),
    ]


def _check(
    name: str, value: float | str, threshold: str, advice: str, *, bad: bool, state: str = WARN
) -> Check:
    return Check(name, value, threshold, state if bad else OK, advice if bad else "")


def _speed(evidence: Evidence, limits: Thresholds) -> Iterator[Check]:
    main = evidence.e2e
    if main is not None:
        yield _check(
            "speedup",
            main.estimate,
            f"at least {limits.speedup:g}",
            "the gain is small for a second model to run; a longer or shorter draft length, "
            "or a better draft, may bring more",
            bad=main.estimate < limits.speedup,
        )
    if main is not None and evidence.p99 is not None:
        split = main.estimate > 1 > evidence.p99.estimate
        yield _check(
            "tail",
            evidence.p99.estimate,
            "P99 no worse when the median is better",
            "the median gains and the tail loses: mixed traffic; measure each category or "
            "temperature alone to see who pays, and switch speculation off for those",
            bad=split,
            state=FAIL,
        )
    if evidence.ttft is not None:
        yield _check(
            "ttft",
            evidence.ttft.estimate,
            "first tokens no later",
            "the draft's prompt pass delays the first token"
            + ("; the service promises one" if evidence.ttft_bound else ""),
            bad=evidence.ttft.high is not None and evidence.ttft.high < 1,
            state=FAIL if evidence.ttft_bound else WARN,
        )


def _acceptance(acceptance: Acceptance | None, limits: Thresholds) -> Iterator[Check]:
    if acceptance is None:
        return
    low, good = limits.low_acceptance, limits.good_acceptance
    yield Check(
        "acceptance",
        acceptance.rate,
        f"under {low:g} poor, over {good:g} good",
        FAIL if acceptance.rate < low else WARN if acceptance.rate <= good else OK,
        ""
        if acceptance.rate > good
        else "most drafts are thrown away: try a shorter draft length or another draft"
        if acceptance.rate < low
        else "in between: a draft distilled on this traffic would help",
    )
    if acceptance.p10 is not None:
        yield _check(
            "acceptance_p10",
            acceptance.p10,
            f"at least {low:g}",
            "a part of the traffic pays for the rest; see acceptance by category and temperature",
            bad=acceptance.p10 < low,
        )


def _traffic(evidence: Evidence, limits: Thresholds) -> Iterator[Check]:
    if evidence.mean_output_tokens is not None:
        yield _check(
            "output_length",
            evidence.mean_output_tokens,
            f"at least {limits.short_output:g} tokens",
            "short answers spend their time on the prompt, which speculation does not speed up",
            bad=evidence.mean_output_tokens < limits.short_output,
        )
    if evidence.temperatures:
        hottest, coldest = max(evidence.temperatures), min(evidence.temperatures)
        yield _check(
            "temperature",
            hottest if hottest == coldest else f"{coldest:g} to {hottest:g}",
            f"at most {limits.hot:g}, not widely mixed",
            "hot or mixed sampling: judge the bands apart, as below",
            bad=hottest > limits.hot or hottest - coldest > limits.wide,
        )


def _memory(memory: Memory | None, limits: Thresholds) -> Iterator[Check]:
    if memory is None:
        return
    yield _check(
        "draft_memory",
        memory.draft,
        f"at most {limits.draft_memory:g} of memory",
        "the draft's memory comes out of the KV cache; quantize it or take a smaller one",
        bad=memory.draft > limits.draft_memory,
    )
    yield _check(
        "headroom",
        memory.headroom,
        f"at least {limits.headroom:g} of memory",
        "little is left for the KV cache: batches will shrink and requests be preempted",
        bad=memory.headroom < limits.headroom,
    )
    yield _check(
        "target_memory",
        memory.target,
        f"at most {limits.target_memory:g} of memory",
        "the target alone fills most of the memory; quantize it or add a device first",
        bad=memory.target > limits.target_memory,
    )


def _pairing(pairing: Pairing | None, limits: Thresholds) -> Iterator[Check]:
    if pairing is None:
        return
    if pairing.size_ratio is not None:
        small, large = limits.smallest_ratio, limits.largest_ratio
        yield _check(
            "size_ratio",
            pairing.size_ratio,
            f"{small:g} to {large:g}",
            "the draft is "
            + ("large: its own passes cost much" if pairing.size_ratio < small else "small")
            + "; the usual pairs are 1:8 to 1:12",
            bad=not small <= pairing.size_ratio <= large,
        )
    for name, same in (("family", pairing.same_family), ("tokenizer", pairing.same_tokenizer)):
        if same is not None:
            yield _check(
                name,
                "same" if same else "other",
                "same as the target's",
                f"a draft with another {name} guesses worse, or cannot be used at all",
                bad=not same,
                state=FAIL if name == "tokenizer" else WARN,
            )


def _quantization(evidence: Evidence, limits: Thresholds) -> Iterator[Check]:
    if evidence.unquantized_acceptance is None or evidence.acceptance is None:
        return
    loss = evidence.unquantized_acceptance - evidence.acceptance.rate
    yield _check(
        "quantization",
        loss,
        f"at most {limits.quantization_loss:g} of acceptance lost",
        "the draft's quantization costs more acceptance than it saves; use more bits",
        bad=loss > limits.quantization_loss,
    )


def _ceiling(costs: Costs | None, evidence: Evidence) -> Iterator[Check]:
    """Against the best this pair could do on this machine, everything accepted."""
    if costs is None or evidence.tpot is None:
        return
    best = ceiling(costs.k, costs.round)
    yield _check(
        "ceiling",
        evidence.tpot.estimate / best,
        f"of at most {best:.2f} with everything accepted",
        "even perfect drafts would lose here: rounds cost too much; shorten the draft length",
        bad=best < 1,
        state=FAIL,
    )


def _break_even(evidence: Evidence) -> Iterator[Check]:
    for load, needed in evidence.break_even.items():
        if evidence.acceptance is not None:
            yield _check(
                f"break_even at {load}",
                evidence.acceptance.rate,
                f"at least {needed:.2f}",
                "under this load the drafts are not accepted often enough to pay",
                bad=evidence.acceptance.rate < needed,
                state=FAIL,
            )


def _equivalence(evidence: Evidence) -> Iterator[Check]:
    same = evidence.equivalence
    if same is None or not same.num_compared:
        return
    where = sorted(same.first_divergences)
    middle = f", typically from character {where[len(where) // 2]} on" if where else ""
    yield _check(
        "same_text",
        same.share,
        f"of {same.num_compared} greedy texts identical",
        f"{same.num_compared - same.num_identical} of them differ{middle}: floating-point ties, or "
        "a rule that does not keep the target's text",
        bad=same.num_identical < same.num_compared,
    )

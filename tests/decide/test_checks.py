"""Every named check on both sides of its threshold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from outdraft.decide.checks import Thresholds, run_checks
from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import Agreement
from outdraft.goodput import RoundCost
from outdraft.plan.findings import FAIL, OK, WARN, Check, Pairing, Shares
from outdraft.speculation import METHODS
from outdraft.stats.ratios import Ratio

from .evidences import about, between


def checks(limits: Thresholds | None = None, **fields: Any) -> dict[str, Check]:
    evidence = Evidence(**{"e2e": None, **fields})
    return {check.name: check for check in run_checks(evidence, limits or Thresholds())}


def exactly(estimate: float) -> Ratio:
    return Ratio(estimate, estimate, estimate, 0.95, 100, 10)


def loss_of(loss: float) -> dict[str, Any]:
    return {"unquantized_acceptance": 0.5 + loss, "acceptance": AcceptanceSummary(0.5)}


SIDES: list[tuple[str, Callable[[Any], dict[str, Any]], Any, Any, str]] = [
    ("speedup", lambda v: {"e2e": exactly(v)}, 1.3, 1.29, WARN),
    ("tail", lambda v: {"e2e": about(1.2), "p99": exactly(v)}, 1.0, 0.99, FAIL),
    ("ttft", lambda v: {"ttft": between(0.5, v)}, 1.0, 0.99, WARN),
    ("acceptance", lambda v: {"acceptance": AcceptanceSummary(v)}, 0.66, 0.65, WARN),
    ("acceptance", lambda v: {"acceptance": AcceptanceSummary(v)}, 0.66, 0.49, FAIL),
    ("acceptance_p10", lambda v: {"acceptance": AcceptanceSummary(0.7, p10=v)}, 0.5, 0.49, WARN),
    ("output_length", lambda v: {"mean_output_tokens": v}, 50.0, 49.0, WARN),
    ("temperature", lambda v: {"temperatures": (v,)}, 0.7, 0.71, WARN),
    ("temperature", lambda v: {"temperatures": (0.1, v)}, 0.6, 0.61, WARN),
    ("draft_memory", lambda v: {"memory": Shares(0.5, v, 0.3)}, 0.15, 0.16, WARN),
    ("headroom", lambda v: {"memory": Shares(0.5, 0.1, v)}, 0.20, 0.19, WARN),
    ("target_memory", lambda v: {"memory": Shares(v, 0.1, 0.3)}, 0.70, 0.71, WARN),
    ("size_ratio", lambda v: {"pairing": Pairing(v)}, 8.0, 7.9, WARN),
    ("size_ratio", lambda v: {"pairing": Pairing(v)}, 12.0, 12.1, WARN),
    ("family", lambda v: {"pairing": Pairing(same_family=v)}, True, False, WARN),
    ("tokenizer", lambda v: {"pairing": Pairing(same_tokenizer=v)}, True, False, FAIL),
    ("quantization", loss_of, 0.049, 0.051, WARN),
    ("ceiling", lambda v: {"costs": RoundCost(4, v), "tpot": about(1.1)}, 5.0, 5.1, FAIL),
    (
        "break_even at 8 req/s",
        lambda v: {
            "acceptance": AcceptanceSummary(v),
            "costs": RoundCost(2, 1.75),
            "load": "8 req/s",
        },
        0.375,
        0.37,
        FAIL,
    ),
    ("same_text", lambda v: {"texts": Agreement(20, v, (7,))}, 20, 19, WARN),
]


@pytest.mark.parametrize(
    ("name", "fields", "good", "bad", "state"), SIDES, ids=[f"{s[0]}-{s[3]}" for s in SIDES]
)
def test_both_sides(
    name: str, fields: Callable[[Any], dict[str, Any]], good: Any, bad: Any, state: str
) -> None:
    fine, poor = checks(**fields(good))[name], checks(**fields(bad))[name]
    assert (fine.state, fine.advice) == (OK, "")
    assert poor.state == state
    assert poor.advice
    assert fine.threshold
    assert fine.value is not None


def test_every_check_there_is_stands_in_the_table() -> None:
    everything = checks(
        e2e=about(1.2),
        p99=about(1.1),
        ttft=about(1.0),
        tpot=about(1.3),
        acceptance=AcceptanceSummary(0.7, 0.5),
        mean_output_tokens=100.0,
        temperatures=(0.0,),
        memory=Shares(0.5, 0.1, 0.3),
        pairing=Pairing(10.0, True, True),
        unquantized_acceptance=0.72,
        costs=RoundCost(4, 1.5),
        load="8 req/s",
        texts=Agreement(20, 20),
    )
    assert set(everything) == {side[0] for side in SIDES}


def test_what_was_not_measured_is_not_checked() -> None:
    assert checks() == {}
    assert checks(texts=Agreement(0, 0)) == {}
    assert set(checks(pairing=Pairing())) == set()
    assert set(checks(unquantized_acceptance=0.9)) == set()
    assert set(checks(costs=RoundCost(2, 1.75), load="8 req/s", p99=about(0.5))) == set()
    never_pays = checks(acceptance=AcceptanceSummary(0.9), costs=RoundCost(2, 3.5))
    assert not any(name.startswith("break_even") for name in never_pays)


def test_thresholds_can_be_moved() -> None:
    assert checks(e2e=about(1.2))["speedup"].state == WARN
    assert checks(Thresholds(speedup=1.1), e2e=about(1.2))["speedup"].state == OK
    assert "1.1" in checks(Thresholds(speedup=1.1), e2e=about(1.2))["speedup"].threshold


def test_a_promised_first_token_makes_a_late_one_worse() -> None:
    late = checks(ttft=between(0.5, 0.8), ttft_bound=True)["ttft"]
    assert late.state == FAIL
    assert "promises" in late.advice


def test_a_tail_that_loses_with_the_mean_is_no_split_and_not_fine_either() -> None:
    """A P99 of 0.64 was "ok", because it was to be no worse when the mean is better."""
    tail = checks(e2e=about(0.8), p99=about(0.7))["tail"]
    assert (tail.state, tail.threshold) == (WARN, "P99 not clearly worse: speedup [0.70, 0.70]")
    assert tail.advice == "the slowest requests get slower, and the average is not clearly better"
    assert checks(e2e=about(0.8), p99=between(0.6, 1.1))["tail"].state == OK, "it may be better"
    assert checks(e2e=about(0.8), p99=about(1.1))["tail"].state == OK
    assert "the traffic is mixed" in checks(e2e=about(1.2), p99=about(0.7))["tail"].advice


POOR = {
    "e2e": exactly(1.1),
    "ttft": between(0.5, 0.9),
    "acceptance": AcceptanceSummary(0.4),
}


@pytest.mark.parametrize("rate", [0.4, 0.6])
@pytest.mark.parametrize("method", [*METHODS[1:], None])
def test_advice_fits_the_method(method: str | None, rate: float) -> None:
    found = checks(**(POOR | {"acceptance": AcceptanceSummary(rate)}), method=method)
    advice = {name: found[name].advice for name in ("speedup", "ttft", "acceptance")}
    assert all(advice.values())
    said = " ".join(advice.values())
    assert ("second model" in said) == (method == "draft_model")
    assert ("head" in said) == (method == "eagle")
    reads_prompt = "to read the prompt" in advice["ttft"]
    assert reads_prompt == (method not in ("ngram", "suffix"))
    if method in ("ngram", "suffix"):
        assert "a better draft" not in said
        assert "another draft" not in said


def test_advice_says_where_texts_part() -> None:
    same = Agreement(20, 17, (120, 4, 33))
    assert same.share == 0.85
    advice = checks(texts=same)["same_text"].advice
    assert advice.startswith(
        "3 of them differ, from character 33 on in the median, the earliest from 4: near-ties"
    )


def test_the_ceiling_is_what_could_be_and_says_of_which_figure_it_is() -> None:
    """It was "0.576 of at most 4.32", then 0.79 without a name beside a headline of 0.80."""
    check = checks(costs=RoundCost(4, 2.0), tpot=exactly(1.25))["ceiling"]
    assert check.value == pytest.approx(2.5)  # k+1 tokens at a cost of 2
    assert check.threshold == (
        "at least 1; by time per token the speed is 1.25 of the baseline's, with every draft token "
        "accepted it would be 2.50"
    )


def test_a_first_token_has_its_interval() -> None:
    """So that 0.94 beside "ok" is understood: 1 lies within."""
    check = checks(ttft=between(0.9, 1.02))["ttft"]
    assert check.state == OK
    assert check.threshold == "first tokens not clearly later: speedup [0.90, 1.02]"
    unknown = checks(ttft=Ratio(0.9, None, None, 0.95, 8, 2))["ttft"]
    assert (unknown.state, unknown.threshold) == (OK, "first tokens not clearly later")

from __future__ import annotations

from outdraft.speculation import Speculation
from outdraft.stats import Ratio
from outdraft.tune.outcome import schedule_of
from outdraft.tune.results import BEST, FAILED, PREDICTED, RACED, ArmResult, LoadResult

ARMS = {f"ngram k={k}": Speculation("ngram", k=k) for k in (2, 4, 8)}


def arm(k: int, state: str, predicted: float, measured: float | None = None) -> ArmResult:
    ratio = None if measured is None else Ratio(measured, None, None, 0.95, 8, 2)
    return ArmResult(f"ngram k={k}", {}, state, predicted=predicted, measured=ratio)


def load(concurrency: int, best: str | None, *arms: ArmResult) -> LoadResult:
    return LoadResult(f"concurrency {concurrency}", concurrency, None, arms, best, None)


def test_a_prediction_that_was_too_high_does_not_beat_what_won() -> None:
    first = load(1, "ngram k=4", arm(4, BEST, 1.9, 1.5), arm(8, PREDICTED, 1.8),
                 arm(2, RACED, 1.7, 1.52))  # fmt: skip
    many = load(16, None, arm(4, FAILED, 2.0, 1.6), arm(8, PREDICTED, 0.9), arm(2, PREDICTED, 0.95))
    assert schedule_of([first, many], "ngram", ARMS) == ((1, 4, 4), (5, 4096, 0))


def test_where_another_proposer_won_what_was_measured_goes_first() -> None:
    only = load(1, "suffix k=2", arm(8, PREDICTED, 1.8), arm(2, RACED, 1.7, 1.2))
    assert schedule_of([only], "ngram", ARMS) == ((1, 4096, 2),)

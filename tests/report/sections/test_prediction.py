from __future__ import annotations

from dataclasses import replace

from outdraft.report.sections.prediction import prediction_text, predictions_of
from outdraft.tune.results import PredictionResult
from tests.report.odd_results import nothing_measured
from tests.report.sample_results import sample_results


def test_points_are_the_arms_with_both() -> None:
    results = sample_results()
    points = predictions_of(results)
    assert len(points) == results.prediction.num_arms
    within = sum(abs(each.error) <= 0.15 for each in points) / len(points)
    assert within == results.prediction.within_15_percent


def test_how_wrong_it_was() -> None:
    words = prediction_text(sample_results())
    assert words.startswith("24 of 26 arms (92\N{NO-BREAK SPACE}%) were predicted within 15 %")
    assert "The largest error: draft_model smollm2-135m-draft k=7 at concurrency 1" in words
    assert words.endswith("(n=36), 20\N{NO-BREAK SPACE}% too high.")


def test_nothing_to_tell() -> None:
    assert predictions_of(nothing_measured()) == ()
    assert "cannot be judged" in prediction_text(nothing_measured())
    alone = replace(nothing_measured(), prediction=PredictionResult(4, 0.5, None))
    assert prediction_text(alone).startswith("2 of 4 arms")

from __future__ import annotations

from dataclasses import replace

from outdraft.report.sections.prediction import (
    prediction_section,
    prediction_text,
    predictions_of,
)
from outdraft.report.tables import tune_table
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


def test_the_arms_of_a_count_are_named() -> None:
    """Of the arms that were measured, some are what the predictions were made of."""
    results = sample_results()
    judged = results.prediction.judged[:5]
    few = replace(results, prediction=PredictionResult(5, 0.8, 0.07, judged))
    words = prediction_text(few)
    assert words.startswith("4 of 5 arms (80\N{NO-BREAK SPACE}%) were predicted within 15 %")
    assert all(f"{arm} at {load}" in words for load, arm in judged)
    assert [(each.load, each.arm) for each in predictions_of(few)] == list(judged)
    named = f"predictions: 4 of 5 arms within 15 %, median error 7 % (concurrency 1: {judged[0][1]}"
    assert named in tune_table(few)
    assert all(arm in tune_table(few).partition("predictions: ")[2] for _, arm in judged)
    of_before = replace(results, prediction=PredictionResult(5, 0.8, 0.07))
    assert "Which ones is not recorded" in prediction_text(of_before)


def test_arms_that_predictions_were_made_from_are_no_test_of_them() -> None:
    """ "No arm was both predicted and measured" stood above a table of nine that were."""
    results = replace(sample_results(), prediction=PredictionResult(0, None, None))
    assert prediction_text(results) == (
        "The predictions cannot be judged: every arm that was both predicted and measured is one "
        "that they were made from."
    )
    assert predictions_of(results) == ()
    assert "<table" not in prediction_section(results)
    assert "predictions: " not in tune_table(results)


def test_nothing_to_tell() -> None:
    assert predictions_of(nothing_measured()) == ()
    assert prediction_text(nothing_measured()) == (
        "The predictions cannot be judged: no arm was both predicted and measured."
    )
    alone = replace(nothing_measured(), prediction=PredictionResult(4, 0.5, None))
    assert prediction_text(alone).startswith("2 of 4 arms")

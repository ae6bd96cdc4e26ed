"""Predicted and measured speedups, and how wrong the predictions were."""

from collections.abc import Sequence
from typing import NamedTuple

from outdraft.report.layout import figure, keys, lead, numbers_of, panels, table
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import count_of, is_finite, percent, times
from outdraft.report.plot import Axis, Plot, labelled, ticks
from outdraft.report.svg import marker, path, polygon, series_class, text
from outdraft.tune.results import Results

_BAND = 0.15  # a prediction within this share of the measurement counts as right
_NUM_WORST = 8
_MOST_NAMED = 6  # arms; more are in the table
_HEIGHT = 316.0  # pixels: about square


class Prediction(NamedTuple):
    arm: str
    load: str
    predicted: float
    measured: float
    num_pairs: int

    @property
    def error(self) -> float:
        """Above 0: predicted too high."""
        return self.predicted / self.measured - 1


def prediction_section(results: Results) -> Markup:
    predictions = predictions_of(results)
    summary = lead(prediction_text(results))
    if not predictions:
        return summary
    loads = [load.name for load in results.loads]
    used = {each.load for each in predictions}
    head = ("arm", "load", "predicted", "measured", "error", "pairs")
    rows = [
        (each.arm, each.load, times(each.predicted), times(each.measured),
         f"{100 * each.error:+.0f} %", f"{each.num_pairs:,}")
        for each in sorted(predictions, key=lambda each: -abs(each.error))
    ]  # fmt: skip
    plotted = figure(
        "Predicted by measured",
        "On the line the prediction was right; above it, too high.",
        prediction_plot(predictions, loads),
        keys([(series_class(at), at, name) for at, name in enumerate(loads) if name in used],
             lines=False),
        numbers_of(table(head, rows, "all predictions", {1: "short"})),
    )  # fmt: skip
    worst = table(head, rows[:_NUM_WORST], "the largest errors", {1: "short"})
    beside = tag("div", tag("h3", "The largest errors"), worst, class_="beside")
    return join(summary, tag("div", panels(plotted), beside, class_="split"))


def predictions_of(results: Results) -> tuple[Prediction, ...]:
    """The arms that the predictions are judged by. Results of before do not name them: then all
    that were both predicted and measured."""
    if not results.prediction.num_arms:
        return ()
    judged, known = set(results.prediction.judged), _both_known(results)
    return tuple(each for each in known if not judged or (each.load, each.arm) in judged)


def _both_known(results: Results) -> tuple[Prediction, ...]:
    """Arms that were predicted and measured."""
    return tuple(
        Prediction(arm.name, load.name, arm.predicted, ratio.estimate, ratio.num_pairs)
        for load in results.loads
        for arm in load.arms
        if (ratio := arm.measured) is not None
        and is_finite(arm.predicted)
        and is_finite(ratio.estimate)
        and ratio.estimate > 0
    )


def prediction_text(results: Results) -> str:
    summary = results.prediction
    if not summary.num_arms or summary.within_15_percent is None:
        why = "no arm was both predicted and measured"
        if _both_known(results):
            why = "every arm that was both predicted and measured is one that they were made from"
        return f"The predictions cannot be judged: {why}."
    within = round(summary.within_15_percent * summary.num_arms)
    words = (
        f"{within} of {summary.num_arms} arms ({percent(summary.within_15_percent)}) were "
        "predicted within 15 % of the measurement"
    )
    if summary.median_error is not None:
        words += f"; the median error is {percent(summary.median_error)}"
    predictions = predictions_of(results)
    if not predictions:
        return f"{words}."
    if len(predictions) != summary.num_arms:
        return f"{words}. Which ones is not recorded; below are all that were measured."
    if len(predictions) <= _MOST_NAMED:
        words += f" ({', '.join(f'{each.arm} at {each.load}' for each in predictions)})"
    worst = max(predictions, key=lambda each: abs(each.error))
    side = "high" if worst.error > 0 else "low"
    return (
        f"{words}. The largest error: {worst.arm} at {worst.load}, {_both(worst)}, "
        f"{percent(abs(worst.error))} too {side}."
    )


def _both(each: Prediction) -> str:
    measured = f"measured {times(each.measured)} ({count_of(each.num_pairs)})"
    return f"predicted {times(each.predicted)}, {measured}"


def prediction_plot(predictions: Sequence[Prediction], loads: Sequence[str]) -> Markup:
    """Each load has its own shape and colour; the band is where a prediction counts as right."""
    values = [value for each in predictions for value in (each.predicted, each.measured)]
    low, high = min([0.9, *values]), max([1.1, *values])
    room = 0.06 * (high - low)
    bottom, top = max(low - room, 0.0), high + room
    plot = Plot((bottom, top), (bottom, top), height=_HEIGHT)
    scale = labelled(ticks(bottom, top))
    # The band, cut off at the edges: along its upper side to the top, back along the lower side.
    up, down = 1 + _BAND, 1 - _BAND
    band = [
        (bottom, min(bottom * up, top)),
        (top / up, top),
        (top, top),
        (top, top * down),
        (min(bottom / down, top), bottom),
        (bottom, bottom),
    ]
    dots = []
    for each in predictions:
        series = loads.index(each.load)
        title = f"{each.arm} at {each.load}: {_both(each)}, error {percent(abs(each.error))}"
        place = plot.at(each.measured, each.predicted)
        dots.append(marker(series, *place, f"dot open {series_class(series)}", title, r=4.2))
    return plot.draw(
        "predicted and measured speedups",
        Axis("measured speedup", scale),
        Axis("predicted speedup", scale),
        polygon([plot.at(x, y) for x, y in band], "band"),
        path([plot.at(end, end) for end in (bottom, top)], "even"),
        text(plot.right - 4, plot.bottom - 8, "band: within 15 %", "end", "quiet"),
        dots,
    )

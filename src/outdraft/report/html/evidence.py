"""Where the memory goes, what the checks say, how good the prediction was."""

from __future__ import annotations

from outdraft.report.figures.memory import memory_parts, overflow
from outdraft.report.figures.prediction import prediction_points, prediction_words
from outdraft.report.html.parts import (
    data_of,
    figure,
    folded,
    legend,
    nothing,
    panels,
    section,
    table,
)
from outdraft.report.markup import Markup, tag
from outdraft.report.numbers import count_of, percent, plain, size, times
from outdraft.report.plots.memory import memory_plot
from outdraft.report.plots.prediction import prediction_plot
from outdraft.tune.results import LoadResult, MemoryResult, Results

_SIGNS = {"ok": "✓", "warn": "!", "fail": "✕"}
_ORDER = {"fail": 0, "warn": 1, "ok": 2}


def memory_section(results: Results) -> Markup:
    memory = results.memory
    title = "Where the memory goes"
    if memory is None:
        return section("memory", title, None, nothing("No plan of the memory was made."))
    parts = memory_parts(memory)
    missing = overflow(memory)
    short = f" {size(missing)} more than there is are needed." if missing else ""
    return section(
        "memory",
        title,
        f"{_whole(memory)} with the best arm. Planned from the models' files, not measured.{short}",
        tag(
            "figure",
            memory_plot(parts, "memory of target, draft and KV cache, and what is free"),
            tag(
                "dl",
                [
                    tag(
                        "div",
                        tag("dt", tag("span", class_=f"swatch part {part.key}"), part.name),
                        tag("dd", tag("b", size(part.num_bytes)), tag("span", percent(part.share))),
                    )
                    for part in parts
                ],
                class_="memory",
            ),
            tag("p", f"Assumed: {memory.note}.", class_="note") if memory.note else None,
        ),
    )


def _whole(memory: MemoryResult) -> str:
    return f"Of {size(memory.total)}," if memory.total else "Of the weights,"


def checks_section(results: Results) -> Markup:
    main = results.main
    lead = (
        "Rules of thumb, each with its value and threshold. They explain the verdict and warn; "
        "they never decide."
    )
    if main is None or not _checks(main):
        return section("checks", "Checks", lead, nothing("There was nothing to check."))
    others = [load for load in results.loads if load is not main and _checks(load)]
    return section(
        "checks",
        "Checks",
        f"{lead} At {main.name}, {_compared(main)}.",
        _table(main),
        [folded(f"The same at {load.name}, {_compared(load)}", _table(load)) for load in others],
    )


def _checks(load: LoadResult) -> list[dict[str, object]]:
    found = [] if load.verdict is None else [dict(each) for each in load.verdict["checks"]]
    return sorted(found, key=lambda each: _ORDER.get(str(each["state"]), 0))


def _compared(load: LoadResult) -> str:
    best = next((arm for arm in load.arms if arm.name == load.best), None)
    if best is None or best.measured is None:
        return "nothing compared"
    return f"{count_of(best.measured.num_pairs)} pairs"


def _table(load: LoadResult) -> Markup:
    return table(
        ("check", "state", "value", "threshold", "advice"),
        [
            (
                str(each["name"]).replace("_", " "),
                tag(
                    "span",
                    tag("span", _SIGNS.get(str(each["state"]), "?"), aria_hidden="true"),
                    str(each["state"]),
                    class_=f"state {each['state']}",
                ),
                plain(each["value"]),
                str(each["threshold"]),
                str(each["advice"]),
            )
            for each in _checks(load)
        ],
        f"checks at {load.name}",
        {0: "label", 1: "short", 3: "words", 4: "words"},
        class_="stacked",
    )


def prediction_section(results: Results) -> Markup:
    points = prediction_points(results)
    title = "Predicted against measured"
    if not points:
        return section("prediction", title, prediction_words(results))
    loads = [load.name for load in results.loads]
    used = [name for name in loads if any(point.load == name for point in points)]
    worst = sorted(points, key=lambda point: -abs(point.error))
    rows = [
        (point.arm, point.load, times(point.predicted), times(point.measured),
         f"{100 * point.error:+.0f} %", f"{point.num_pairs:,}")
        for point in worst
    ]  # fmt: skip
    head = ("arm", "load", "predicted", "measured", "error", "pairs")
    return section(
        "prediction",
        title,
        prediction_words(results),
        tag(
            "div",
            panels(
                figure(
                    "Every arm that was measured",
                    "On the line the prediction was right; above it, too high.",
                    prediction_plot(points, loads, "predicted against measured speedups"),
                    legend([(loads.index(name), name) for name in used], lines=False),
                    data_of(table(head, rows, "all predictions", {1: "short"})),
                )
            ),
            tag("div", tag("h3", "The farthest off"),
                table(head, rows[:8], "predictions farthest off", {1: "short"}), class_="beside"),
            class_="split",
        ),
    )  # fmt: skip

"""What the load decides."""

from __future__ import annotations

from outdraft.report.figures.loads import crossover, load_axis, load_rows, schedule_rows
from outdraft.report.html.parts import data_of, figure, keys, panels, section, table
from outdraft.report.markup import Markup, tag
from outdraft.report.numbers import count_of, interval, rate, share, times
from outdraft.report.plots.loads import load_plot, schedule_plot, throughput_plot
from outdraft.tune.results import Results, ScheduleResult


def loads_section(results: Results) -> Markup:
    rows = load_rows(results)
    axis = load_axis(results)
    by_load = figure(
        "Best speedup by load",
        "The whiskers are the intervals that the verdicts use.",
        load_plot(rows, axis, "speedup of the best arm at each load, with intervals"),
    )
    measured = any(row.ratio is not None for row in rows)
    throughput = figure(
        "Throughput by load",
        "Tokens a second of all requests together.",
        throughput_plot(rows, axis, "tokens a second of best and off at each load"),
        keys([("best", 0, "best"), ("off", 1, "off")]),
    )
    return section(
        "loads",
        "Load decides",
        crossover(results),
        panels(by_load, throughput, _schedule(results)) if measured else None,
        table(
            (
                "load",
                "best arm",
                "speedup",
                "interval",
                "pairs",
                "acceptance",
                "tokens/s, off",
                "tokens/s, best",
                "verdict",
            ),
            [
                (
                    row.load.name,
                    "none measured" if row.best is None else row.best.name,
                    "–" if row.ratio is None else times(row.ratio.estimate),
                    "–" if row.ratio is None else interval(row.ratio),
                    "–" if row.ratio is None else count_of(row.ratio.num_pairs),
                    "–" if row.best is None else share(row.best.acceptance_rate),
                    "–" if row.off is None else rate(row.off.tokens_per_s),
                    "–" if row.best is None else rate(row.best.tokens_per_s),
                    tag("b", row.decision),
                )
                for row in rows
            ],
            "best arm at each load",
            {0: "short", 1: "name", 8: "short"},
        ),
    )


def _schedule(results: Results) -> Markup | None:
    if not results.schedule:
        return None
    return figure(
        "Schedule",
        "The draft length to use by how many requests are running; off is 0.",
        schedule_plot(schedule_rows(results), "draft length by requests running"),
        data_of(
            table(
                ("requests running", "draft length"),
                [(running, f"k={k}" if k else "off") for running, k in schedule_rows(results)],
                "the schedule",
                {0: "short"},
            )
        ),
        table(
            ("measured at", "speedup", "interval", "pairs"),
            [_scheduled(each) for each in results.scheduled],
            "the schedule over off, measured",
            {0: "short"},
        )
        if results.scheduled
        else None,
    )


def _scheduled(found: ScheduleResult) -> tuple[str, ...]:
    ratio = found.measured
    if ratio is None:
        return found.load, "failed", found.reason, "–"
    return found.load, times(ratio.estimate), interval(ratio), count_of(ratio.num_pairs)

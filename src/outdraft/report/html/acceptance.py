"""How often drafts are accepted: by position, by temperature, by category."""

from __future__ import annotations

import math
from collections.abc import Sequence

from outdraft.report.figures.acceptance import (
    MOST_TOGETHER,
    Curve,
    category_ranges,
    ranked,
    survival,
    survival_by_temperature,
    temperature_bands,
)
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
from outdraft.report.markup import Markup, join
from outdraft.report.numbers import count_of, percent, share
from outdraft.report.plots.curves import survival_plot, temperature_plot
from outdraft.report.plots.ranges import range_plot
from outdraft.tune.results import AcceptanceResult, Results


def acceptance_section(results: Results) -> Markup:
    found = ranked(results)
    if not found:
        return section("acceptance", "Acceptance", None,
                       nothing("No acceptance was measured."))  # fmt: skip
    return section(
        "acceptance",
        "Acceptance",
        "How often drafts are accepted, for each proposer over all its requests at its largest "
        "draft length. A position counts as accepted only if all before it were.",
        panels(_together(found), _temperatures(found), *(_positions(each) for each in found)),
        _table(found),
    )


def category_section(results: Results) -> Markup:
    found = [each for each in ranked(results) if each.by_category]
    if not found:
        return section("categories", "Acceptance by category", None,
                       nothing("No acceptance by category was measured."))  # fmt: skip
    shown, rest = found[:3], found[3:]
    return section(
        "categories",
        "Acceptance by category",
        "Over the requests of each category: the dot is P50, the bar reaches from P10 to P90. "
        "A long bar is traffic that gains unevenly.",
        panels(*(_categories(each) for each in shown)),
        folded(f"{len(rest)} more proposers", panels(*(_categories(each) for each in rest)))
        if rest
        else None,
    )


def _together(found: Sequence[AcceptanceResult]) -> Markup | None:
    curves = survival(found)[:MOST_TOGETHER]
    if not curves:
        return None
    left_out = len(survival(found)) - len(curves)
    return figure(
        "All proposers, by position",
        f"The first {MOST_TOGETHER}; {left_out} more have panels of their own."
        if left_out
        else None,
        survival_plot(curves, "acceptance by position, a curve for each proposer"),
        legend([(index, each.name) for index, each in enumerate(curves)]),
    )


def _temperatures(found: Sequence[AcceptanceResult]) -> Markup | None:
    told = [each for each in found if each.by_temperature][:MOST_TOGETHER]
    bands = temperature_bands(told)
    if len(bands) < 2:  # a lone band is all of it
        return None
    curves = [
        Curve(each.name, tuple(each.by_temperature.get(band, math.nan) for band in bands))
        for each in told
    ]
    return figure(
        "All proposers, by temperature",
        None,
        temperature_plot(curves, bands, "acceptance rate by temperature, a curve for each"),
        legend([(index, each.name) for index, each in enumerate(curves)]),
        data_of(
            table(
                ("proposer", *bands, "n"),
                [
                    (
                        each.name,
                        *(_with_count(each, band) for band in bands),
                        f"{each.num_requests:,}",
                    )
                    for each in told
                ],
                "acceptance rate by temperature",
            )
        ),
    )


def _positions(found: AcceptanceResult) -> Markup | None:
    curves = survival_by_temperature(found)
    if not curves:
        return None
    longest = max(len(each.values) for each in curves)
    return figure(
        found.name,
        _summary(found),
        survival_plot(curves, f"acceptance by position of {found.name}, by temperature"),
        legend([(index, _named(each)) for index, each in enumerate(curves)]),
        data_of(
            table(
                ("position", *(str(place) for place in range(1, longest + 1)), "n"),
                [
                    (each.name, *(share(value) for value in each.values),
                     *("–" for _ in range(longest - len(each.values))), _count(each.count))
                    for each in curves
                ],
                f"acceptance by position of {found.name}",
            )
        ),
    )  # fmt: skip


def _named(curve: Curve) -> str:
    return curve.name if curve.count is None else f"{curve.name}, {count_of(curve.count)}"


def _count(count: int | None) -> str:
    return "–" if count is None else f"{count:,}"


def _with_count(found: AcceptanceResult, band: str) -> str:
    rate = share(found.by_temperature.get(band))
    count = found.num_by_temperature.get(band)
    return rate if count is None else f"{rate} ({count_of(count)})"


def _summary(found: AcceptanceResult) -> str:
    length = "" if found.length is None else f", {found.length:.2f} tokens a round"
    return f"rate {share(found.rate)}{length} at k={found.k}, {count_of(found.num_requests)}"


def _categories(found: AcceptanceResult) -> Markup:
    ranges = category_ranges(found)
    return figure(
        found.name,
        f"{count_of(found.num_requests)} requests over all categories",
        range_plot(ranges, f"acceptance by category of {found.name}: P10, P50 and P90"),
        data_of(
            table(
                ("category", "P10", "P50", "P90", "n"),
                [(each.category, share(each.p10), share(each.p50), share(each.p90),
                  _count(each.count)) for each in ranges],
                f"acceptance by category of {found.name}",
            )
        ),
    )  # fmt: skip


def _table(found: Sequence[AcceptanceResult]) -> Markup:
    return join(
        table(
            ("proposer", "k", "rate", "tokens a round", "steps with a draft", "n"),
            [
                (
                    each.name,
                    str(each.k),
                    share(each.rate),
                    share(each.length),
                    "–" if each.share_drafted is None else percent(each.share_drafted),
                    f"{each.num_requests:,}",
                )
                for each in found
            ],
            "acceptance of each proposer",
        )
    )

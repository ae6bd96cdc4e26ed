"""The named checks of each verdict: value, threshold, advice."""

from outdraft.plan.findings import FAIL, OK, WARN, Check
from outdraft.report.layout import folded, lead, nothing, table
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import count_of, plain
from outdraft.tune.results import FROM_COUNTERS, LoadResult, Results

_SIGNS = {FAIL: "✕", WARN: "!", OK: "✓"}  # in the order of the table
_LEAD = (
    "Rules of thumb, each with its value and threshold. They explain the verdict and warn; they "
    "never decide."
)


def checks_section(results: Results) -> Markup:
    checked = [load for load in results.loads if load.verdict is not None and load.verdict.checks]
    if not checked:
        return join(lead(_LEAD), nothing("There was nothing to check."))
    first, *others = sorted(checked, key=lambda load: load is not results.main)
    return join(
        lead(f"{_LEAD} At {first.name}, {_pairs(first)}."),
        _unchecked(first),
        _table(first),
        [folded(f"The same at {load.name}, {_pairs(load)}", _table(load)) for load in others],
    )


def _unchecked(load: LoadResult) -> Markup | None:
    best = load.best_arm
    if best is None or best.acceptance_source != FROM_COUNTERS:
        return None
    return nothing(
        "Whether some requests have a low acceptance is not checked: that needs the acceptance of "
        "each answer, and this server has counters only."
    )


def _pairs(load: LoadResult) -> str:
    ratio = load.measured
    return "nothing compared" if ratio is None else f"{count_of(ratio.num_pairs)} pairs"


def _table(load: LoadResult) -> Markup:
    checks = () if load.verdict is None else load.verdict.checks
    order = {state: at for at, state in enumerate(_SIGNS)}
    return table(
        ("check", "state", "value", "threshold", "advice"),
        [_row(check) for check in sorted(checks, key=lambda each: order.get(each.state, 0))],
        f"checks at {load.name}",
        {0: "label", 1: "short", 3: "words", 4: "words"},
        class_="stacked",
    )


def _row(check: Check) -> tuple[Child, ...]:
    sign = tag("span", _SIGNS.get(check.state, "?"), aria_hidden="true")
    state = tag("span", sign, check.state, class_=f"state {check.state}")
    name = check.name.replace("_", " ")
    return name, state, plain(check.value), check.threshold, check.advice

"""Whether arms write off's text: how many agree, how many of off's own do, and an example."""

from outdraft.decide.texts import BEGINNING, Agreement, Difference, TextFinding, first_difference
from outdraft.report.layout import folded, lead, nothing, table
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import UNKNOWN
from outdraft.tune.results import STATES, ArmResult, LoadResult, Results

_LEAD = (
    "Greedy texts of every arm, beside those of off to the same requests: of the best arm, where "
    "it was judged, those of race and final together, as the verdict counts them. Floating point "
    "alone makes some differ. So, where texts differed at all, off got some of its requests again "
    "at another batch size: how many of its own texts it repeats is the floor. An arm clearly "
    "below it is not shipped, whatever its speed."
)
_FINDINGS = {
    TextFinding.SAME: "not clearly fewer than the floor",
    TextFinding.DOUBTFUL: "✕ most differ, and no floor explains it",
    TextFinding.OTHER: "✕ clearly other texts",
    TextFinding.NONE: "differ by design (a lossy rule)",
}


def texts_section(results: Results) -> Markup:
    compared = [load for load in results.loads if any(arm.texts for arm in load.arms)]
    if not compared:
        return nothing("No texts were compared: no arm has one to a greedy request that off has.")
    first, *others = sorted(compared, key=lambda load: load is not results.main)
    return join(
        lead(f"{_LEAD} At {first.name}."),
        _table(first),
        _example(first),
        [folded(f"The same at {load.name}", _table(load), _example(load)) for load in others],
    )


def _table(load: LoadResult) -> Markup:
    arms = sorted(load.arms, key=lambda arm: (STATES.index(arm.fate), -(arm.speedup or 0.0)))
    rows = [_row(arm.name, arm.texts, _finding(load, arm)) for arm in arms if arm.texts]
    if load.text_floor is not None:
        rows.insert(0, _row("off, sent again", load.text_floor, "the floor"))
    head = ("arm", "as off's", f"first {BEGINNING} characters", "part at, median", "earliest",
            "finding")  # fmt: skip
    return table(head, rows, f"texts at {load.name}", {5: "words"})


def _row(name: str, texts: Agreement, finding: str) -> tuple[Child, ...]:
    places = sorted(texts.first_differences)
    middle, first = (
        (f"{places[(len(places) - 1) // 2]:,}", f"{places[0]:,}") if places else (UNKNOWN, UNKNOWN)
    )
    num = texts.num_compared
    same, alike = (f"{count:,} of {num:,}" for count in (texts.num_identical, texts.num_alike))
    return name, same, alike, middle, first, finding


def _finding(load: LoadResult, arm: ArmResult) -> str:
    if arm.texts is not None and not arm.texts.first_differences:
        return "all the same"
    finding = load.finding_on(arm)
    has_no_floor = finding is TextFinding.SAME and load.text_floor is None
    return "the floor was not measured" if has_no_floor else _FINDINGS[finding]


def _example(load: LoadResult) -> Markup | None:
    """Of the best arm, else of the one whose text parts first."""
    examples = [
        (arm.name != load.best, arm.texts.example.at, arm.name, arm.texts.example)
        for arm in load.arms
        if arm.texts is not None and arm.texts.example is not None
    ]
    if not examples:
        return None
    *_, name, example = min(examples, key=lambda each: each[:3])
    title = f"Prompt {example.prompt_id} ({example.category}), from character {example.at:,} on"
    sides = (("off", example.baseline), (name, example.candidate))
    return join(
        tag("h3", title),
        tag("div", [_side(title, text, example) for title, text in sides], class_="columns"),
    )


def _side(title: str, text: str, example: Difference) -> Markup:
    same = first_difference(example.baseline, example.candidate)
    words = tag("code", text[:same], tag("b", text[same:]))
    return tag("div", tag("p", tag("b", title)), tag("p", words, class_="text"))

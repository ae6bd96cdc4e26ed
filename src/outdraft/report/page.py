"""The page of a tuning run."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from outdraft.report.markup import Markup
from outdraft.report.one_file import Part, one_file
from outdraft.report.sections.acceptance import acceptance_section, category_section
from outdraft.report.sections.checks import checks_section
from outdraft.report.sections.latency import latency_section
from outdraft.report.sections.loads import loads_section
from outdraft.report.sections.memory import memory_section
from outdraft.report.sections.prediction import prediction_section
from outdraft.report.sections.run import arms_section, pruned_section, run_section
from outdraft.report.sections.speedups import speedups_section
from outdraft.report.sections.texts import texts_section
from outdraft.report.sections.verdict import verdict_card
from outdraft.tune.results import Results


class Section(NamedTuple):
    key: str  # its address in the page
    link: str  # its name in the navigation
    title: str
    body: Callable[[Results], Markup]


SECTIONS = (
    Section("loads", "Load", "Results by load", loads_section),
    Section("speedups", "Speedup", "Speedup by draft length and load", speedups_section),
    Section("times", "Latency", "Latency of best and off", latency_section),
    Section("acceptance", "Acceptance", "Acceptance", acceptance_section),
    Section("categories", "Categories", "Acceptance by category", category_section),
    Section("texts", "Texts", "The same text", texts_section),
    Section("memory", "Memory", "Where the memory goes", memory_section),
    Section("checks", "Checks", "Checks", checks_section),
    Section("prediction", "Prediction", "Predicted and measured", prediction_section),
    Section("arms", "Arms", "All arms", arms_section),
    Section("pruned", "Pruned", "Pruned before measuring", pruned_section),
    Section("run", "Environment", "Environment and settings", run_section),
)


def page(results: Results, files: Sequence[str] = ()) -> str:
    """`files`: the names of files in the same folder, to link to."""
    return one_file(
        title=f"{results.target}: tuning report",
        kind="tuning report",
        about=(results.target, results.backend),
        started_at=results.started_at,
        first="verdict",
        card=verdict_card(results, files),
        parts=[Part(each.key, each.link, each.title, each.body(results)) for each in SECTIONS],
    )

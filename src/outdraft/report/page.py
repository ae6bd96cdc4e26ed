"""The whole page: one file, no script, nothing fetched. Text, style and pictures are all in it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from outdraft.report.frame import framed
from outdraft.report.markup import Markup, tag
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
from outdraft.report.theme import stylesheet
from outdraft.tune.results import Results

# The browser fetches nothing and runs nothing, whatever texts the results contain.
_POLICY = tag(
    "meta",
    http_equiv="Content-Security-Policy",
    content="default-src 'none'; style-src 'unsafe-inline'; img-src data:",
)


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
    started = results.started_at
    what = (
        tag("span", results.target),
        tag("span", results.backend),
        tag("time", started[:16].replace("T", " ")) if started else None,
    )
    told = f", run started {started}" if started else ""
    return framed(
        {
            "policy": _POLICY,
            "title": f"{results.target}: tuning report",
            "style": stylesheet(),
            "first": "verdict",
            "kind": "tuning report",
            "what": tag("p", what, class_="what"),
            "card": verdict_card(results, files),
            "links": [tag("a", section.link, href=f"#{section.key}") for section in SECTIONS],
            "sections": [_section(section, results) for section in SECTIONS],
            "footer": f"{told}. This page is one file: it fetches and runs nothing.",
        }
    )


def _section(section: Section, results: Results) -> Markup:
    heading = tag("h2", section.title, id=f"{section.key}-title")
    body = section.body(results)
    return tag("section", heading, body, id=section.key, aria_labelledby=f"{section.key}-title")

"""The whole page, from top to bottom."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files as resources

from outdraft.report.html.acceptance import acceptance_section, category_section
from outdraft.report.html.evidence import checks_section, memory_section, prediction_section
from outdraft.report.html.latency import latency_section
from outdraft.report.html.loads import loads_section
from outdraft.report.html.run import arms_section, pruned_section, run_section
from outdraft.report.html.speedups import speedups_section
from outdraft.report.html.theme import theme_css
from outdraft.report.html.verdict_card import verdict_card
from outdraft.report.markup import Markup, join, tag
from outdraft.tune.results import Results
from outdraft.version import __version__

# Nothing is fetched and nothing runs, whatever stands in the results.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_CONTENTS = (
    ("loads", "Load"),
    ("speedups", "Speedup"),
    ("times", "Times"),
    ("acceptance", "Acceptance"),
    ("categories", "Categories"),
    ("memory", "Memory"),
    ("checks", "Checks"),
    ("prediction", "Prediction"),
    ("arms", "Arms"),
    ("pruned", "Pruned"),
    ("run", "Environment"),
)


def page(results: Results, files: Sequence[str] = ()) -> str:
    """`files`: names of what lies in the same folder."""
    style = resources("outdraft.report.html").joinpath("style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name_="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name_="generator", content=f"outdraft {__version__}"),
        tag("link", rel="icon", href="data:,"),
        tag("title", f"{results.target}: tuning report"),
        tag("style", Markup(theme_css() + style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the verdict", href="#verdict", class_="skip"),
        _top(results),
        tag(
            "main",
            verdict_card(results, files),
            tag(
                "nav",
                [tag("a", name, href=f"#{key}") for key, name in _CONTENTS],
                aria_label="sections",
            ),
            loads_section(results),
            speedups_section(results),
            latency_section(results),
            acceptance_section(results),
            category_section(results),
            memory_section(results),
            checks_section(results),
            prediction_section(results),
            arms_section(results),
            pruned_section(results),
            run_section(results),
        ),
        tag("footer", _made(results)),
    )
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _top(results: Results) -> Markup:
    return tag(
        "header",
        tag("p", tag("b", "outdraft"), tag("span", "tuning report"), class_="brand"),
        tag("p", tag("span", results.target), tag("span", results.backend),
            tag("time", results.started_at[:16].replace("T", " "))
            if results.started_at else None, class_="what"),
        tag(
            "fieldset",
            tag("legend", "Colours"),
            [
                join(
                    tag("input", type="radio", name_="theme", id=f"theme-{name}",
                        checked=name == "auto"),
                    tag("label", name, for_=f"theme-{name}"),
                )
                for name in ("auto", "light", "dark")
            ],
            class_="theme",
        ),
    )  # fmt: skip


def _made(results: Results) -> Markup:
    when = f", run started {results.started_at}" if results.started_at else ""
    return tag("p", f"Made by outdraft {__version__}{when}. This page is one file: nothing is "
               "fetched, nothing runs.")  # fmt: skip

"""`outdraft tune`: the best settings for this model, hardware and traffic, with proof."""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.config_file import add_options_with_file, fill
from outdraft.cli.options import Option
from outdraft.cli.tune_settings import TUNE, Tuning, settings_of
from outdraft.errors import OptionError

if TYPE_CHECKING:
    from outdraft.tune.files import Export
    from outdraft.tune.results import Results

_EXAMPLES = """\
examples:
  outdraft tune
  outdraft tune --concurrency 1,8 --temperature 0.0:60%,0.8:40% --budget 20m
  outdraft tune --target ./my-model --draft ./my-draft --prompts traffic.jsonl --objective tpot
  outdraft tune --backend vllm --target meta-llama/Llama-3.1-8B-Instruct --methods ngram --budget 1h
  outdraft tune --config tune.toml
"""

_FILES = (
    Option("--out", "folder for the report, the results and the configurations; a run that was "
           "interrupted goes on from there", default="tune-out", metavar="DIR"),
    Option("--config", "the same options from a TOML file; flags win", metavar="FILE"),
    Option("--json", "print the results as one JSON object, nothing else", is_switch=True),
)  # fmt: skip


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "tune",
        help="find the best settings, with a verdict and a report",
        usage="outdraft tune [options]",
        description="Measure what speculation gives on this model, hardware and traffic, find the "
        "best settings for each load, and write a report and configurations.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_options_with_file(parser, "search", TUNE)
    add_options_with_file(parser, "files", _FILES)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    fill(args, (*TUNE, *(each for each in _FILES if each.key != "config")), args.config, "tune")
    folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--out {folder} is a file; give a folder")
    tuning = settings_of(args)
    results = _search(tuning, folder)
    return _finish(results, folder, args.json)


def _search(tuning: Tuning, folder: Path) -> Results:
    from rich.console import Console

    from outdraft.report.tune_live import tune_live
    from outdraft.tune.assemble import make_results
    from outdraft.tune.journal import Journal
    from outdraft.tune.lab import Lab
    from outdraft.tune.scheduled import with_schedule
    from outdraft.tune.session import search

    with (
        tune_live(Console(file=sys.stderr)) as show,
        Journal(folder / "journal.jsonl", tuning.header) as journal,
        Lab(
            tuning.backend,
            tuning.serving,
            tuning.blocks,
            longest=max(arm.k for arm in tuning.search.arms),
            logs=folder / "logs",
            on_wait=show.starting,
        ) as lab,
    ):
        if journal.is_resumed:
            show.note(f"going on with the run in {folder}")
        finished = search(tuning.search, journal, lab.measure, show.told, lab.prepare)
        results = make_results(tuning.given, tuning.search, finished, journal)
        return with_schedule(results, tuning.search, journal, lab.measure, show.told)


def _exporter() -> Export | None:
    """None without torch, which reads weights: then a note says what to run."""
    if find_spec("torch") is None:
        return None

    def export(name: str, folder: Path) -> None:
        from outdraft.distill.export import export_draft

        export_draft(name, folder)

    return export


def _finish(results: Results, folder: Path, as_json: bool) -> int:
    from outdraft.report.tune_table import best_line, tune_table
    from outdraft.report.write import write_report
    from outdraft.tune.files import write_results

    written, left_out = write_results(results, folder, _exporter())
    write_report(results, folder / "report.html")
    if as_json:
        print(json.dumps(results.to_json()))
        return 0
    print(tune_table(results))
    print()
    print(f"written to {folder}: report.html, {', '.join(written)}")
    for name, reason in left_out.items():
        print(f"no {name}: {reason}")
    print(best_line(results))
    return 0

"""`outdraft tune`: the best settings for this model, hardware and traffic, with proof."""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size

from rich.console import Console

from outdraft.errors import OptionError
from outdraft.report.tables import best_line, tune_table
from outdraft.report.tune_live import tune_live
from outdraft.report.write import write_report
from outdraft.text_table import wrap_lines
from outdraft.tune.files import write_results
from outdraft.tune.run import plan_run, run_tuning
from outdraft.tune.settings import RunSettings
from outdraft.tune.wording import results_json


def run(args: argparse.Namespace) -> int:
    folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--out {folder} is a file; give a folder")
    plan = plan_run(RunSettings.from_options(args))
    with tune_live(Console(file=sys.stderr)) as display:
        results = run_tuning(plan, folder, display, retries_failed=args.retry_failed)
    # Without torch, which reads weights, a note says what to run.
    export = None if find_spec("torch") is None else _export
    written, left_out = write_results(results, folder, export)
    write_report(results, folder / "report.html")
    if args.json:
        print(json.dumps(results_json(results)))
        return 0
    # Where no terminal is, lines stay whole.
    width = get_terminal_size().columns if sys.stdout.isatty() else None
    print(f"{tune_table(results, width)}\n")
    left = [f"no {name}: {reason}" for name, reason in left_out.items()]
    lines = (f"written to {folder}: report.html, {', '.join(written)}", *left, best_line(results))
    print(wrap_lines("\n".join(lines), width))
    return 0


def _export(name: str, folder: Path) -> None:
    # torch takes seconds to import, and few runs have to export a draft.
    from outdraft.distill.saving.export import export_draft

    export_draft(name, folder)

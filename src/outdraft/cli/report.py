"""`outdraft report DIR`: the page of a tuning run, made again from its results."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from outdraft.cli.options import Option, add_options

_EXAMPLES = """\
examples:
  outdraft report tune-out
  outdraft report tune-out --out /srv/www/tuning.html
"""

_REPORT = (
    Option("--out", "write the page to this file (default: DIR/report.html)", metavar="FILE"),
    Option("--json", "print one JSON object, nothing else", is_switch=True),
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="make the page of a tuning run again",
        usage="outdraft report DIR [options]",
        description="Make report.html again from the results.json that `outdraft tune` left in "
        "a folder, and print where it is.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("folder", metavar="DIR", help="of the tuning run")
    add_options(parser, "report", _REPORT)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from outdraft.report.tune_table import best_line
    from outdraft.report.write import rebuild_report

    out = None if args.out is None else Path(args.out)
    path, results = rebuild_report(Path(args.folder), out)
    if args.json:
        print(json.dumps({"report": str(path), "best": best_line(results)}))
    else:
        print(path)
    return 0

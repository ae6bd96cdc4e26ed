"""`outdraft`: finds the command, runs it, turns errors into one line and an exit code.

0 done · 1 a measurement is invalid, or the engine failed · 2 something the user can mend
130 interrupted
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from outdraft import __version__
from outdraft.cli import bench, compare, distill, emit, export, generate, plan, report, serve, tune
from outdraft.errors import OptionError, OutdraftError

_EXAMPLES = """\
examples:
  outdraft tune
  outdraft generate "Why is the sky blue?"
  outdraft generate "Repeat: one two three four one two" --method ngram --k 5 --compare
  outdraft serve --method ngram --k 5
  outdraft generate --help
"""


class Parser(argparse.ArgumentParser):
    """argparse, with its complaints in the form of all others: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see `{self.prog} --help`")


def build_parser() -> Parser:
    parser = Parser(
        prog="outdraft",
        description="Decide on, tune and run speculative decoding, with evidence.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"outdraft {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", parser_class=Parser
    )
    generate.add_parser(commands)
    serve.add_parser(commands)
    bench.add_parser(commands)
    compare.add_parser(commands)
    tune.add_parser(commands)
    report.add_parser(commands)
    emit.add_parser(commands)
    plan.add_parser(commands)
    distill.add_parser(commands)
    export.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        parser = build_parser()
        args = parser.parse_args(arguments)
        if args.command is None:
            parser.print_help()
            return 0
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except OutdraftError as error:
        if debug:
            raise
        print(f"outdraft: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader left (`| head`). Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # no permission, a full disk: the system's own words say it
        if debug:
            raise
        print(f"outdraft: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\noutdraft: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

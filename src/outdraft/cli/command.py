"""A command as a value: its options and what it runs."""

import argparse
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from outdraft.cli.unknown_flags import unknown_arguments
from outdraft.errors import OptionError
from outdraft.options import Option, add_options, fill_options

# By command: usage, description, examples and, for the list of commands, a summary.
HELP: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("commands.toml").read_text(encoding="utf-8")
)


class Parser(argparse.ArgumentParser):
    """argparse whose errors have the form of all others: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise OptionError(f"{message}; see `{self.prog} --help`")


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    groups: Mapping[str, tuple[Option, ...]]  # by their title in --help

    @property
    def options(self) -> tuple[Option, ...]:
        return tuple(option for group in self.groups.values() for option in group)

    def parser(self) -> Parser:
        parser = make_parser(f"outdraft {self.name}")
        for title, options in self.groups.items():
            add_options(parser, title, options)
        return parser

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Flags, then the file of --config where the command has it, then defaults."""
        parser = self.parser()
        args, unknown = parser.parse_known_args(arguments)
        if unknown:
            shown = [option for option in self.options if not option.is_hidden]
            flags = [option.flag for option in shown if option.flag.startswith("-")]
            places = {each.flag: each.value_name or "" for each in shown if each.flag not in flags}
            parser.error(unknown_arguments(unknown, flags, places))
        in_file = [option for option in self.options if option.key != "config"]
        fill_options(args, in_file, getattr(args, "config", None), self.name)
        return args

    def run(self, args: argparse.Namespace) -> int:
        """`run` of the module of its name, which only now imports the libraries it needs."""
        code: int = import_module(f"outdraft.cli.{self.name}").run(args)
        return code


def make_parser(prog: str, appendix: str = "") -> Parser:
    """For `outdraft` or `outdraft COMMAND`; the appendix follows the description."""
    text = HELP[prog.split()[-1]]
    parser = Parser(
        prog=prog,
        usage=f"{prog} {text['usage']}",
        description=textwrap.fill(text["description"], 80) + appendix,
        epilog="examples:\n" + textwrap.indent(text["examples"].rstrip(), "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser

"""`outdraft`: finds the command, runs it, turns errors into one line and an exit code.

0 done · 1 a measurement is invalid, or the engine failed · 2 something the user can fix
130 interrupted · 141 the reader of stdout left
"""

import os
import sys
from collections.abc import Sequence

from outdraft import __version__
from outdraft.cli.command import HELP, Command, make_parser
from outdraft.cli.unknown_flags import unknown_arguments
from outdraft.errors import OutdraftError, unknown_choice

# Each is a module of this package with a `run`; only the chosen one is imported.
COMMANDS = {name: text["summary"] for name, text in HELP.items() if name != "outdraft"}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    try:
        code = _run(arguments)
        sys.stdout.flush()  # so that a reader who left is noticed here
        return code
    except BrokenPipeError:
        # The reader left (`| head`). Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (OutdraftError, OSError, ModuleNotFoundError) as error:
        if debug:
            raise
        print(f"outdraft: {_message(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\noutdraft: interrupted", file=sys.stderr)
        return 130


def _message(error: Exception) -> str:
    if isinstance(error, ModuleNotFoundError):  # torch, fastapi: packages of an extra
        return f"this needs {error.name}, not installed here; run pip install 'outdraft[server]'"
    return str(error)  # of an OSError, such as a full disk: the system's own words


def find_command(name: str) -> Command:
    if name not in COMMANDS:
        raise unknown_choice("command", name, COMMANDS)
    # `outdraft --help` and a misspelt command need no options.
    from outdraft.cli.commands import GROUPS

    return Command(name, GROUPS[name])


def _run(arguments: list[str]) -> int:
    place = next((i for i, each in enumerate(arguments) if not each.startswith("-")), None)
    table = "".join(f"\n  {name:10} {summary}" for name, summary in COMMANDS.items())
    parser = make_parser("outdraft", f"\n\ncommands:{table}")
    parser.add_argument("--version", action="version", version=f"outdraft {__version__}")
    _, unknown = parser.parse_known_args(arguments[:place])
    if unknown:
        parser.error(unknown_arguments(unknown, ("--help", "--version", "--debug")))
    if place is None:
        parser.print_help()
        return 0
    command = find_command(arguments[place])
    return command.run(command.parse(arguments[place + 1 :]))

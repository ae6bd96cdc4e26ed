"""The reference of all commands and options as Markdown, made of their declarations."""

import html
import textwrap

from outdraft.cli.command import HELP
from outdraft.cli.main import COMMANDS, find_command
from outdraft.options import Option


def index_page() -> str:
    """The list of commands."""
    rows = "\n".join(f"| [`outdraft {name}`]({name}.md) | {COMMANDS[name]} |" for name in COMMANDS)
    return (
        "# Commands\n\nEvery page is made of the declarations that the command itself reads, as "
        f"`--help` is.\n\n| command | |\n|---|---|\n{rows}\n\n"
        "`outdraft --version` prints the version; `--debug` shows tracebacks.\n"
    )


def command_page(name: str) -> str:
    """Usage, examples and a table for every group of options."""
    text = HELP[name]
    parts = [
        f"# outdraft {name}",
        _plain(" ".join(text["description"].split())),
        _block(f"outdraft {name} {text['usage']}", "text"),
        "Examples:",
        _block(text["examples"], "sh"),
    ]
    for title, options in find_command(name).groups.items():
        shown = [option for option in options if not option.is_hidden]
        if shown:
            table = ["| option | meaning | default |", "|---|---|---|", *map(_row, shown)]
            parts += [f"## {title[0].upper()}{title[1:]}", "\n".join(table)]
    return "\n\n".join(parts) + "\n"


def _row(option: Option) -> str:
    is_flag = option.flag.startswith("-")
    words = [option.flag] if is_flag else []
    if not option.is_switch:
        words.append(option.value_name or option.key.upper())
    default = "" if option.default is None else _code(option.shown_default)
    return f"| {_code(' '.join(words))} | {_meaning(option)} | {default} |"


def _meaning(option: Option) -> str:
    notes = [_plain(_cell(option.help))]
    if option.choices and not all(each in option.help for each in option.choices):
        notes.append("one of " + ", ".join(f"`{each}`" for each in option.choices))
    if option.minimum is not None and option.maximum is not None:
        notes.append(f"from {option.minimum:g} to {option.maximum:g}")
    elif option.minimum is not None:
        notes.append(f"at least {option.minimum:g}")
    if option.is_required:
        notes.append("has to be given")
    if option.repeats and "repeated" not in option.help:
        notes.append("may be given several times")
    if option.also:
        notes.append("earlier: " + ", ".join(f"`{each}`" for each in option.also))
    return "; ".join(notes)


def _cell(text: str) -> str:
    """In a row of a table, even where it holds the sign that ends a cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _code(text: str) -> str:
    """Of a cell. Between backticks a backslash would be shown, so the sign is written as HTML."""
    words = html.escape(" ".join(text.split()), quote=False).replace("|", "&#124;")
    return f"<code>{words}</code>"


def _plain(text: str) -> str:
    """Words in capitals, `*` and `<` mean themselves; code stays code."""
    pieces = text.split("`")
    escaped = [
        piece if inside % 2 else html.escape(piece, quote=False).replace("*", "\\*")
        for inside, piece in enumerate(pieces)
    ]
    return "`".join(escaped)


def _block(text: str, language: str) -> str:
    return f"```{language}\n{textwrap.dedent(text).strip()}\n```"

"""Outside text in an emitted file: a comment stays in its line, a string in its quotes.

Names of models, notes, versions and categories come from users and servers: whatever they hold,
they must not become a command or a key.
"""

import json
from collections.abc import Iterable


def comments(lines: Iterable[str]) -> list[str]:
    """Each as one comment of a shell, YAML or TOML file: the only way that one gets into a file."""
    return [f"# {_one_line(line)}".rstrip() for line in lines]


def quoted(value: object) -> str:
    """A value of JSON that YAML and TOML read as the same one: these know more line ends than JSON,
    and no pairs of surrogates."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def is_plain(text: str) -> bool:
    """Whether it can stand in a file as it is: lines of printable characters."""
    return all(line.isprintable() for line in text.split("\n"))


def _one_line(text: str) -> str:
    """Spaces for line ends of every kind; other characters that nobody sees are spelled out."""
    return "".join(
        " " if each.isspace() else each if each.isprintable() else _escape(each) for each in text
    )


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"

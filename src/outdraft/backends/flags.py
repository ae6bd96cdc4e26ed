"""Flags of a command as data: name, values, and the reason why each is there."""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"  # where engines listen that are started here
_REASONS = tomllib.loads(Path(__file__).with_name("reasons.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Flag:
    name: str  # empty for a positional argument
    values: tuple[str, ...] = ()  # none: a switch
    reason: str = ""  # empty for a user's own flag
    details: tuple[str, ...] = ()  # a value of several settings: a line for each

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, *self.values) if self.name else self.values


def make_flags(values: Mapping[str, object]) -> list[Flag]:
    """Flags with the reasons of reasons.toml, or with their own: (value, reason).

    True is a switch; None and False leave the flag out.
    """
    flags = []
    for name, value in values.items():
        value, reason = value if isinstance(value, tuple) else (value, _REASONS["flags"][name])
        if value is not None and value is not False:
            flags.append(Flag(name, () if value is True else (str(value),), reason))
    return flags


def json_flag(name: str, settings: Mapping[str, object]) -> Flag:
    """A flag whose value is a JSON object, with the reasons for its keys."""
    reasons = _REASONS["settings"]
    details = tuple(
        f"{key} {json.dumps(value)}{f': {reasons[key]}' if key in reasons else ''}"
        for key, value in settings.items()
    )
    return Flag(name, (json.dumps(settings),), _REASONS["flags"][name], details)


def user_flags(words: Iterable[str]) -> list[Flag]:
    """A user's own flags with their values, as `--flag value` or `--flag=value`. A value never
    begins with a dash and a letter."""
    groups: list[list[str]] = []
    for word in words:
        if not groups or (word.startswith("-") and word.lstrip("-")[:1].isalpha()):
            is_whole = word.startswith("--") and "=" in word
            groups.append(word.split("=", 1) if is_whole else [word])
        else:
            groups[-1].append(word)
    return [Flag(name, tuple(values)) for name, *values in groups]


def first_given(words: Iterable[str], names: Sequence[str]) -> str | None:
    """The first of `names` that is among a user's own flags."""
    given = {flag.name for flag in user_flags(words)}
    return next((name for name in names if name in given), None)

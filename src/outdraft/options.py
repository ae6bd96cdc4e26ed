"""One declaration per option: its flag, its key in a TOML file and its line of help.

A command parses flags with `add_options`, then `fill_options` takes what was not given from a
TOML file, else from the declaration. Only there are values converted and checked, so a flag and
a key of a file are treated alike.
"""

import argparse
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from outdraft.errors import OptionError, unknown_choice

# How values of a type are called in --help and in messages
_NAMES: dict[Callable[[str], Any], tuple[str, str]] = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
}
_Settings = TypeVar("_Settings")


@dataclass(frozen=True, slots=True)
class Option:
    """An option. `dataclasses.replace` makes the same option with another default or help."""

    flag: str  # --like-this, its key is like_this; without dashes it is a positional argument
    help: str
    type: Callable[[str], Any] | None = None  # None: that of a default number, else str
    default: Any = None
    metavar: str | None = None
    repeats: bool = False
    is_optional: bool = False  # an argument without a flag that may be missing
    is_list: bool = False  # one or several values with commas between them: a tuple
    is_hidden: bool = False
    is_required: bool = False
    also: tuple[str, ...] = ()  # earlier flags of the same option, still understood
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None

    @property
    def key(self) -> str:
        return _key(self.flag)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.key, *map(_key, self.also))

    @property
    def is_switch(self) -> bool:
        return self.type is bool

    @property
    def converter(self) -> Callable[[str], Any]:
        """Raises ValueError, or OptionError with a message of its own."""
        return self.type or (type(self.default) if isinstance(self.default, int | float) else str)

    @property
    def value_name(self) -> str | None:
        return self.metavar or _NAMES.get(self.converter, (None, ""))[0]

    @property
    def filled(self) -> Any:
        """Its value where none was given."""
        if self.is_switch:
            return False
        is_single = self.is_list and not isinstance(self.default, tuple | None)
        return (self.default,) if is_single else self.default

    @property
    def shown_default(self) -> str:
        """As it would be given."""
        values = self.default if isinstance(self.default, tuple) else (self.default,)
        return ",".join(f"{each}" for each in values)

    def parse(self, text: str) -> Any:
        if not self.is_list:
            return self._parse_one(text)
        values = tuple(self._parse_one(each.strip()) for each in text.split(","))
        if len(set(values)) < len(values):
            raise OptionError(f"{self.flag} {text!r} names one twice")
        return values

    def _parse_one(self, text: str) -> Any:
        try:
            value = self.converter(text)
        except ValueError:
            expected = _NAMES.get(self.converter, ("", "another value"))[1]
            raise OptionError(f"{self.flag} takes {expected}, got {text!r}") from None
        if self.choices and value not in self.choices:
            raise unknown_choice(self.key.replace("_", " "), value, self.choices)
        low, high = self.minimum, self.maximum
        # Compared so that NaN is out of bounds.
        if (low is None or value >= low) and (high is None or value <= high):
            return value
        bounds = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
        raise OptionError(f"{self.flag} must be {bounds}, got {text}")


def add_options(parser: argparse.ArgumentParser, title: str, options: Iterable[Option]) -> None:
    """Adds a group of options. One that is not given is missing in the namespace until
    `fill_options`."""
    group = parser.add_argument_group(title)
    for option in options:
        shown = "" if option.default is None else f" (default: {option.shown_default})"
        help_text = argparse.SUPPRESS if option.is_hidden else f"{option.help}{shown}"
        words: dict[str, Any] = {"help": help_text.replace("%", "%%")}
        if not option.is_switch:
            words["metavar"] = option.value_name
        if not option.flag.startswith("-"):
            if option.repeats or option.is_optional:  # any number of them, or one; also none
                nargs = "*" if option.repeats else "?"
                words |= {"nargs": nargs, "default": argparse.SUPPRESS}
            parser.add_argument(option.flag, **words)
            continue
        action = "store_true" if option.is_switch else "append" if option.repeats else "store"
        words |= {"action": action, "dest": option.key, "default": argparse.SUPPRESS}
        group.add_argument(option.flag, **words)
        if option.also:
            group.add_argument(*option.also, **(words | {"help": argparse.SUPPRESS}))


def fill_options(
    args: argparse.Namespace, options: Iterable[Option], path: str | None = None, section: str = ""
) -> None:
    """Completes the namespace: flags win over the TOML file at `path`, the file over defaults.

    A file may hold the settings of several commands, each in the section of its name."""
    options = tuple(options)
    settings = {} if path is None else _read_toml(Path(path), section)
    valid = {key for option in options for key in option.keys}
    for key in settings:
        if key not in valid:
            raise unknown_choice(f"key in {path}", key, sorted(option.key for option in options))
    for option in options:
        in_file = next((key for key in option.keys if key in settings), None)
        if hasattr(args, option.key):
            value = getattr(args, option.key)
            if option.repeats:
                value = [option.parse(each) for each in value]
            elif not option.is_switch:
                value = option.parse(value)
        elif in_file is not None:
            value = value_in_file(option, settings[in_file], f"{path}: {in_file}")
        elif option.is_required:
            wanted = f"{option.flag} {option.value_name}: {option.help}"
            raise OptionError(f"{option.flag} is missing; give {wanted}")
        else:
            value = option.filled
        setattr(args, option.key, value)


def refuse_given(args: argparse.Namespace, options: Iterable[Option], where: str) -> None:
    """`where` these options mean nothing, those with another value than the default."""
    given = [each.flag for each in options if getattr(args, each.key) != each.filled]
    if given:
        raise OptionError(f"{' and '.join(given)} would change nothing {where}; leave it out")


def make_settings(settings: Callable[..., _Settings], args: object, **values: Any) -> _Settings:
    """A dataclass with these values; its other fields take the options of the same name."""
    for field in fields(settings):  # type: ignore[arg-type]
        if field.name not in values and getattr(args, field.name, None) is not None:
            values[field.name] = getattr(args, field.name)
    return settings(**values)


def _key(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _read_toml(path: Path, section: str) -> dict[str, Any]:
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} is not TOML ({error})") from None
    inner = settings.get(section)
    if isinstance(inner, dict):
        outside = [key for key, value in settings.items() if not isinstance(value, dict)]
        if outside:
            raise OptionError(f"{path}: {outside[0]} stands before [{section}]; move it into it")
        settings = inner
    return {_key(key): value for key, value in settings.items()}


def value_in_file(option: Option, value: Any, name: str) -> Any:
    """A value of a TOML file, as the flag would have it: a list becomes values with commas."""
    if option.is_switch:
        if not isinstance(value, bool):
            raise OptionError(f"{name} is true or false, got {value!r}")
        return value
    values = value if isinstance(value, list) else [value]
    if any(isinstance(each, bool | dict | list) for each in values):
        raise OptionError(f"{name} cannot be {value!r}")
    texts = [str(each) for each in values]
    try:
        if option.repeats:
            return [option.parse(each) for each in texts]
        return option.parse(",".join(texts))
    except OptionError as error:
        raise OptionError(f"{name} cannot be {value!r}: {error}") from None

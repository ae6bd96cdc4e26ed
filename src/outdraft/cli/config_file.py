"""Options from a TOML file: the same keys as the flags, and flags win."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from outdraft.cli.options import Option, add_options
from outdraft.errors import OptionError, unknown_choice


def add_options_with_file(
    parser: argparse.ArgumentParser, title: str, options: Iterable[Option]
) -> None:
    """As `add_options`, but an option that is not given stays None, to be filled by `fill`."""
    add_options(
        parser,
        title,
        [
            option
            if option.default is None
            else replace(option, default=None, help=f"{option.help} (default: {option.default})")
            for option in options
        ],
    )


def fill(
    args: argparse.Namespace, options: Iterable[Option], path: str | None, section: str
) -> None:
    """What was not given as a flag comes from the file, else from the declaration.

    A file may hold the settings of several commands, each in the section of its name."""
    known = {option.key: option for option in options}
    settings = {} if path is None else _read(Path(path), section)
    for key in settings:
        if key not in known:
            raise unknown_choice(f"key in {path}", key, sorted(known))
    for key, option in known.items():
        given = getattr(args, key)
        if given is None or given is False:  # 0 is a value
            default = False if option.is_switch else option.default
            value = _typed(option, settings[key], path) if key in settings else default
            setattr(args, key, value)


def _read(path: Path, section: str) -> dict[str, Any]:
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
    return {key.replace("-", "_"): value for key, value in settings.items()}


def _typed(option: Option, value: Any, path: str | None) -> Any:
    """Lists become what the flag's text would be; numbers and texts go through its type."""
    if option.is_switch:
        if not isinstance(value, bool):
            raise OptionError(f"{path}: {option.key} is true or false, got {value!r}")
        return value
    if option.repeats:
        return [str(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        value = ",".join(str(each) for each in value)
    if isinstance(value, bool | dict):
        raise OptionError(f"{path}: {option.key} cannot be {value!r}")
    try:
        return option.type(str(value))
    except ValueError:
        raise OptionError(f"{path}: {option.key} cannot be {value!r}") from None

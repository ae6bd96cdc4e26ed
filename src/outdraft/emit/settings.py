"""What `emit` is asked to write: its options and files, checked and turned into values."""

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from outdraft.backends.backend import Serving
from outdraft.backends.options import split_flags
from outdraft.errors import OptionError
from outdraft.options import make_settings
from outdraft.speculation import Speculation


def serving_from(args: argparse.Namespace) -> Serving:
    extra = split_flags(args.engine_flags)
    return make_settings(Serving, args, served_name=args.served_model_name, extra=extra)


def read_speculation(name: str) -> Speculation:
    """From a JSON or TOML file: alone, under the key `speculation`, or in an `outdraft.toml`."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(f"cannot read {name}: {reason}") from error
    settings = _parse_settings(text, name)
    served = settings.get("serve")
    if isinstance(served, dict):  # what a tuning run writes for our own server
        settings = _parse_settings(str(served.get("speculative_config", "{}")), name)
    inner = settings.get("speculation")
    return Speculation.from_mapping(inner if isinstance(inner, dict) else settings)


def _parse_settings(text: str, name: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as not_json:
        try:
            settings = tomllib.loads(text)
        except tomllib.TOMLDecodeError as not_toml:
            reason = not_json if text.lstrip().startswith("{") else not_toml
            raise OptionError(f"{name} is neither JSON nor TOML ({reason})") from None
    if not isinstance(settings, dict):
        raise OptionError(f"{name} holds no settings but {str(settings)[:40]!r}")
    return settings

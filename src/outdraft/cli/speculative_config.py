"""`--speculative-config` in vLLM's form, and the older flags that articles still show."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from outdraft.backends.vllm_old_flags import NGRAM_MODELS, OLD_FLAGS, note, settings_of
from outdraft.cli.options import SPECULATION, Option, speculation_from
from outdraft.errors import OptionError
from outdraft.speculation import Speculation

CONFIG = Option(
    "--speculative-config",
    'speculation as vLLM\'s JSON, e.g. \'{"method": "ngram", "num_speculative_tokens": 5}\'',
    metavar="JSON",
)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speculation, as in vLLM")
    group.add_argument(CONFIG.flag, metavar=CONFIG.metavar, help=CONFIG.help)
    for old in OLD_FLAGS:
        group.add_argument(old.flag, type=old.type, help=argparse.SUPPRESS)


def speculation_of(args: argparse.Namespace, tell: Callable[[str], None]) -> Speculation:
    """From whichever of the three forms was used; `tell` hears what old flags are called now."""
    settings = _old_settings(args, tell)
    plain = _changed(args)
    if args.speculative_config is not None:
        if plain:
            raise OptionError(
                f"--speculative-config and {plain[0]} both say how to speculate; keep one"
            )
        settings = _merged(_parsed(args.speculative_config), settings)
    elif settings and plain:
        raise OptionError(f"{plain[0]} and the older flags both say how to speculate; keep one")
    if settings.get("model") in NGRAM_MODELS and settings.get("method") in (None, "ngram"):
        settings |= {"model": None, "method": "ngram"}
    if settings:
        return Speculation.from_mapping(settings)
    return speculation_from(args)


def _changed(args: argparse.Namespace) -> list[str]:
    """Flags of our own form that were given."""
    return [o.flag for o in SPECULATION if getattr(args, o.key) != o.default]


def _parsed(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise OptionError(f"--speculative-config is not JSON ({error}), got {text!r}") from None
    if not isinstance(settings, dict):
        raise OptionError(f"--speculative-config takes a JSON object, got {text!r}")
    return settings


def _merged(settings: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    twice = next((key for key in old if key in settings), None)
    if twice is not None:
        raise OptionError(f"{twice} is in --speculative-config and among the older flags; keep one")
    return settings | old


def _old_settings(args: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, Any]:
    keys = {old.flag: old.flag.removeprefix("--").replace("-", "_") for old in OLD_FLAGS}
    given = {flag: value for flag, key in keys.items() if (value := getattr(args, key)) is not None}
    for flag in given:
        tell(note(flag))
    return settings_of(given)

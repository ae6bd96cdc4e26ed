"""`--speculative-config` in vLLM's form, and the older flags that articles still show."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from outdraft.cli.options import SPECULATION, Option, speculation_from
from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import MAX_K, Speculation

CONFIG = Option(
    "--speculative-config",
    'speculation as vLLM\'s JSON, e.g. \'{"method": "ngram", "num_speculative_tokens": 5}\'',
    metavar="JSON",
)

_RULES = {"rejection_sampler": "rejection", "typical_acceptance_sampler": "typical"}
_NGRAM = ("ngram", "[ngram]")  # once spelled as a model
_NEVER = 1 << 30  # more sequences than ever run


@dataclass(frozen=True, slots=True)
class _OldFlag:
    flag: str
    key: str  # in --speculative-config
    type: Callable[[str], Any] = str


_OLD_FLAGS = (
    _OldFlag("--speculative-model", "model"),
    _OldFlag("--num-speculative-tokens", "num_speculative_tokens", int),
    _OldFlag("--speculative-disable-by-batch-size", "num_speculative_tokens_per_batch_size", int),
    _OldFlag("--spec-decoding-acceptance-method", "rule"),
    _OldFlag("--typical-acceptance-sampler-posterior-threshold", "posterior_threshold", float),
    _OldFlag("--typical-acceptance-sampler-posterior-alpha", "posterior_alpha", float),
    _OldFlag("--speculative-model-quantization", "quantization"),
    _OldFlag("--ngram-prompt-lookup-max", "prompt_lookup_max", int),
    _OldFlag("--ngram-prompt-lookup-min", "prompt_lookup_min", int),
)


def add_config_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("speculation, as in vLLM")
    group.add_argument(CONFIG.flag, metavar=CONFIG.metavar, help=CONFIG.help)
    for old in _OLD_FLAGS:
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
    if settings.get("model") in _NGRAM and settings.get("method") in (None, "ngram"):
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
    settings: dict[str, Any] = {}
    for old in _OLD_FLAGS:
        value = getattr(args, old.flag.removeprefix("--").replace("-", "_"))
        if value is None:
            continue
        tell(f"{old.flag} is now {old.key} in --speculative-config; it is taken as that")
        settings[old.key] = value
    if "rule" in settings:
        if settings["rule"] not in _RULES:
            raise unknown_choice(
                "--spec-decoding-acceptance-method", settings["rule"], tuple(_RULES)
            )
        settings["rule"] = _RULES[settings["rule"]]
    limit = settings.get("num_speculative_tokens_per_batch_size")
    if limit is not None:
        if limit < 2:
            raise OptionError(
                f"--speculative-disable-by-batch-size must be at least 2, got {limit}"
            )
        settings["num_speculative_tokens_per_batch_size"] = [
            [1, limit - 1, MAX_K],  # whatever k is: the smaller one counts
            [limit, _NEVER, 0],
        ]
    return settings

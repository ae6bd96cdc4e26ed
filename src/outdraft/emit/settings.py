"""What `emit` is asked to write: its options and files, checked and turned into values."""

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outdraft import shared_options as shared
from outdraft.backends.backend import Serving
from outdraft.backends.options import split_flags
from outdraft.emit.options import SERVING_OPTIONS
from outdraft.errors import OptionError
from outdraft.options import make_settings, value_in_file
from outdraft.speculation import OFF, Speculation

_OWN = "outdraft"
# Keys of [serve] that mean the same on every engine; then those of our engine that change its speed
_OF_ANY = ("target", "max_model_len", "max_num_seqs")
_OF_OURS = ("dtype", "quantization", "threads", "device", "kv_cache_memory_bytes",
            "max_num_batched_tokens", "no_enable_prefix_caching")  # fmt: skip
_OF_MEASURED = ("dtype", "threads", "tensor_parallel_size", "engine_flags")  # keys of [emit]
# Our server's options of speculation, as a Speculation calls them
_SPECULATION_KEYS = {"draft_quantization": "quantization", "acceptance": "rule"} | {
    key: key for key in ("method", "draft", "k", "rule", "prompt_lookup_min", "prompt_lookup_max")
}
_OPTIONS = {each.key: each for each in (*SERVING_OPTIONS, shared.THREADS)}
# How files of earlier versions say off: in a comment, because no method was off then.
_OFF_IN_WORDS = "# Speculation stays off: "


@dataclass(frozen=True, slots=True)
class SpeculationFile:
    """What a file says: how to speculate, and how the target was served where that was measured."""

    speculation: Speculation
    name: str  # of the file
    of_any: Mapping[str, Any] = field(default_factory=dict)  # settings for every engine
    of_engines: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # for one of them
    left_out: tuple[str, ...] = ()  # keys of our server that no configuration takes over


def serving_from(
    args: argparse.Namespace, found: SpeculationFile
) -> tuple[Serving, tuple[str, ...]]:
    """Options win over the file. Also a note of what was taken from it, and of what was not."""
    told = {**found.of_any, **found.of_engines.get(args.engine, {})}
    others = {key: None for each in found.of_engines.values() for key in each if key not in told}
    left_out = [*others, *found.left_out]
    taken = {
        key: value_in_file(_OPTIONS[key], value, f"{found.name}: {key}") if key in _OPTIONS
        else value
        for key, value in told.items()
        if getattr(args, key, None) is None
    }  # fmt: skip
    notes = []
    if taken:
        said = ", ".join(f"{key} {value}" for key, value in taken.items())
        notes.append(f"as in {found.name}: {said}")
    if left_out:
        notes.append(f"not taken from {found.name}: {', '.join(left_out)}")
    flags = args.engine_flags or taken.pop("engine_flags", None)
    extra = _words({key: taken.pop(key) for key in list(taken) if key not in _OPTIONS})
    values = {
        "target": args.target or shared.TARGET.default,
        "served_name": args.served_model_name,
        "extra": (*extra, *split_flags(flags)),
    }
    return make_settings(Serving, args, **(values | taken)), tuple(notes)


def _words(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Settings of our server as its flags."""
    words: list[str] = []
    for key, value in settings.items():
        if value is not False:
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [str(value)])]
    return tuple(words)


def read_file(name: str) -> SpeculationFile:
    """From JSON or TOML, in a file or given as it is: a speculation alone, or under the key
    `speculation`, or an `outdraft.toml`."""
    text, name = _text_of(name)
    settings = _parse_settings(text, name)
    served = settings.get("serve")
    if isinstance(served, dict):  # what a tuning run writes for our own server
        return _of_server(_with_our_keys(served), settings.get("emit"), text, name)
    inner = settings.get("speculation")
    return SpeculationFile(
        Speculation.from_mapping(inner if isinstance(inner, dict) else settings), name
    )


def says_off_in_words(text: str) -> bool:
    """Whether a tuning run of an earlier version wrote this `outdraft.toml` for off."""
    return any(line.startswith(_OFF_IN_WORDS) for line in text.splitlines())


def _of_server(served: dict[str, Any], measured: Any, text: str, name: str) -> SpeculationFile:
    given = {new: served.pop(key) for key, new in _SPECULATION_KEYS.items() if key in served}
    if (config := served.pop("speculative_config", None)) is not None:
        if given:
            raise OptionError(
                f"{name}: speculative_config and {next(iter(given))} both say how to speculate; "
                "keep one"
            )
        speculation = Speculation.from_mapping(_parse_settings(str(config), name))
    elif "method" in given:
        speculation = Speculation.from_mapping(given)
    elif "draft" not in given and says_off_in_words(text):
        speculation = OFF
    else:  # our server chooses by the machine that it is on
        raise OptionError(f'{name} has no method under [serve]; write one, such as method = "off"')
    of_any = {key: served.pop(key) for key in _OF_ANY if key in served}
    of_engines = {_OWN: {key: served.pop(key) for key in _OF_OURS if key in served}}
    if isinstance(measured, dict):
        of_engines[str(measured.get("engine"))] = {
            key: value for key, value in measured.items() if key in _OF_MEASURED
        }
    return SpeculationFile(speculation, name, of_any, of_engines, tuple(served))


def _with_our_keys(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key.replace("-", "_"): value for key, value in settings.items()}


def _text_of(name: str) -> tuple[str, str]:
    """The text, and what to call it."""
    if name.lstrip().startswith("{"):
        return name, "--speculation"
    if name == "-":
        return sys.stdin.read(), "the standard input"
    try:
        return Path(name).read_text(encoding="utf-8"), name
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise OptionError(f"cannot read {name}: {reason}") from error


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

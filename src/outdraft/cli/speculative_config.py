"""`--speculative-config` in vLLM's form, and the older flags that articles still show."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outdraft.backends.vllm.old_flags import NGRAM_MODELS, rename_note, translate_values
from outdraft.catalog import shipped_draft
from outdraft.cli.options import OLD_OPTIONS
from outdraft.emit.settings import says_off_in_words
from outdraft.engine.options import SPECULATION_OPTIONS
from outdraft.engine.settings import method_for, speculation_from
from outdraft.errors import OptionError
from outdraft.speculation import OFF, WITH_DRAFT, Speculation, check_own_method, our_method


def speculation_in_any_form(args: argparse.Namespace, say: Callable[[str], None]) -> Speculation:
    """From our options, vLLM's JSON or its older flags. Says what those are called now."""
    old = {option.flag: getattr(args, option.key) for option in OLD_OPTIONS}
    old = {flag: value for flag, value in old.items() if value is not None}
    for flag in old:
        say(rename_note(flag))
    settings = translate_values(old)
    ours = [o.flag for o in SPECULATION_OPTIONS if getattr(args, o.key) != o.default]
    if args.speculative_config is not None:
        if ours:
            raise OptionError(
                f"--speculative-config and {ours[0]} both say how to speculate; keep one"
            )
        in_json = _parse(args.speculative_config)
        if twice := in_json.keys() & settings:
            where = "is in --speculative-config and among the older flags"
            raise OptionError(f"{min(twice)} {where}; keep one")
        settings = in_json | settings
    elif settings and ours:
        raise OptionError(f"{ours[0]} and the older flags both say how to speculate; keep one")
    if settings.get("model") in NGRAM_MODELS and settings.get("method") in (None, "ngram"):
        settings |= {"model": None, "method": "ngram"}
    if not settings and args.speculative_config is None:
        config = getattr(args, "config", None)
        if args.method is None and args.draft is None and _says_off(config):
            say(f'{config} is of an earlier version: off; write method = "off" into it')
            return OFF
        return speculation_from(args)
    return Speculation.from_mapping(_with_draft(settings, args.target))


def _says_off(config: str | None) -> bool:
    return config is not None and says_off_in_words(Path(config).read_text(encoding="utf-8"))


def _with_draft(settings: dict[str, Any], target: str) -> dict[str, Any]:
    """A draft alone says the method, and the other way round, as among our own options."""
    given = {key: value for key, value in settings.items() if value is not None}
    draft = given.get("model", given.get("draft"))
    method = given.get("method")
    if isinstance(method, str):
        method = our_method(method)
        check_own_method(method)
    if method is None and isinstance(draft, str):
        return {**given, "method": method_for(draft)}
    if method in WITH_DRAFT and draft is None:
        return {**given, "draft": shipped_draft(target, method)}
    return settings


def _parse(text: str) -> dict[str, Any]:
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise OptionError(f"--speculative-config is not JSON ({error}), got {text!r}") from None
    if not isinstance(settings, dict):
        raise OptionError(f"--speculative-config takes a JSON object, got {text!r}")
    return settings

"""Flags of vLLM that articles from 2024 still show, and what became of them."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from outdraft.backends.flags import Flag, user_flags
from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import MAX_K, OFF, VLLM_KEYS, Speculation

# Flag → key of --speculative-config (our own where vLLM has none any more), type of its value.
OLD_FLAGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--speculative-model": ("model", str),
    "--num-speculative-tokens": ("num_speculative_tokens", int),
    "--speculative-disable-by-batch-size": ("num_speculative_tokens_per_batch_size", int),
    "--spec-decoding-acceptance-method": ("rule", str),
    "--typical-acceptance-sampler-posterior-threshold": ("posterior_threshold", float),
    "--typical-acceptance-sampler-posterior-alpha": ("posterior_alpha", float),
    "--speculative-model-quantization": ("quantization", str),
    "--speculative-draft-tensor-parallel-size": ("draft_tensor_parallel_size", int),
    "--ngram-prompt-lookup-max": ("prompt_lookup_max", int),
    "--ngram-prompt-lookup-min": ("prompt_lookup_min", int),
}
# Gone without a successor.
_DROPPED = {
    "--use-v2-block-manager": "vLLM has one block manager left",
    "--speculative-max-model-len": "the draft's length follows the target's",
}
_RULES = {"rejection_sampler": "rejection", "typical_acceptance_sampler": "typical"}
NGRAM_MODELS = ("ngram", "[ngram]")  # once spelled as a model
_NEVER = 1 << 30  # more sequences than ever run


def translate_values(old: Mapping[str, Any]) -> dict[str, Any]:
    """Old flags with their values → keys of --speculative-config (and our own `rule`)."""
    settings = {OLD_FLAGS[flag][0]: value for flag, value in old.items()}
    if "rule" in settings:
        if settings["rule"] not in _RULES:
            raise unknown_choice("--spec-decoding-acceptance-method", settings["rule"], [*_RULES])
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
    if settings.get("model") in NGRAM_MODELS:
        settings |= {"model": None, "method": "ngram"}
    return settings


def rename_note(flag: str) -> str:
    return f"{flag} is now {OLD_FLAGS[flag][0]} in --speculative-config; it is taken as that"


def take_out(extra: Sequence[str]) -> tuple[dict[str, Any], list[Flag], list[str]]:
    """Separates old flags from the others: (their values, the other flags, notes)."""
    old: dict[str, Any] = {}
    rest: list[Flag] = []
    notes: list[str] = []
    for flag in user_flags(extra):
        name = flag.name.replace("_", "-")
        if name in _DROPPED:
            notes.append(f"{name} is left out: {_DROPPED[name]}")
        elif name in OLD_FLAGS:
            if not flag.values:
                raise OptionError(f"{name} needs a value")
            try:
                old[name] = OLD_FLAGS[name][1](flag.values[0])
            except ValueError:
                raise OptionError(f"{name} takes a number, got {flag.values[0]!r}") from None
            notes.append(rename_note(name))
        else:
            rest.append(flag)
    return old, rest, notes


def merged(speculation: Speculation, old: Mapping[str, Any]) -> Speculation:
    """The speculation with the settings of old flags, which replace its defaults only."""
    if not old:
        return speculation
    settings = {VLLM_KEYS.get(key, key): value for key, value in translate_values(old).items()}
    if speculation.is_off:
        meant = Speculation.from_mapping(settings)
        raise OptionError(
            f"{next(iter(old))} says how to speculate, and speculation is off here; leave it out, "
            f"or make it the speculation: {json.dumps(asdict(meant))}"
        )
    settings = {key: value for key, value in settings.items() if value is not None}
    for key, value in settings.items():
        now = getattr(speculation, key)
        if now not in (value, getattr(OFF, key)):
            raise OptionError(
                f"old flags say {key} = {value!r}, the speculation says {now!r}; keep one"
            )
    return Speculation.from_mapping(asdict(speculation) | settings)

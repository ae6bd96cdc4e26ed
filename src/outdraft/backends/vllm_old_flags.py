"""Flags of vLLM that articles from 2024 still show, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import MAX_K, OFF, Speculation

_RULES = {"rejection_sampler": "rejection", "typical_acceptance_sampler": "typical"}
NGRAM_MODELS = ("ngram", "[ngram]")  # once spelled as a model
_NEVER = 1 << 30  # more sequences than ever run


@dataclass(frozen=True, slots=True)
class OldFlag:
    flag: str
    key: str  # of --speculative-config, or our own where vLLM has none any more
    type: Callable[[str], Any] = str


OLD_FLAGS = (
    OldFlag("--speculative-model", "model"),
    OldFlag("--num-speculative-tokens", "num_speculative_tokens", int),
    OldFlag("--speculative-disable-by-batch-size", "num_speculative_tokens_per_batch_size", int),
    OldFlag("--spec-decoding-acceptance-method", "rule"),
    OldFlag("--typical-acceptance-sampler-posterior-threshold", "posterior_threshold", float),
    OldFlag("--typical-acceptance-sampler-posterior-alpha", "posterior_alpha", float),
    OldFlag("--speculative-model-quantization", "quantization"),
    OldFlag("--speculative-draft-tensor-parallel-size", "draft_tensor_parallel_size", int),
    OldFlag("--ngram-prompt-lookup-max", "prompt_lookup_max", int),
    OldFlag("--ngram-prompt-lookup-min", "prompt_lookup_min", int),
)
_OURS = {
    "model": "draft",
    "num_speculative_tokens": "k",
    "num_speculative_tokens_per_batch_size": "schedule",
}
_BY_FLAG = {old.flag: old for old in OLD_FLAGS}
# Gone without a successor, because what they asked for is so today, or is no more.
_DROPPED = {
    "--use-v2-block-manager": "vLLM has one block manager left",
    "--speculative-max-model-len": "the draft's length follows the target's",
}
_WITH_VALUE = frozenset({"--speculative-max-model-len"})


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Old flags with their values → keys of --speculative-config (and our own `rule`)."""
    settings = {_BY_FLAG[flag].key: value for flag, value in given.items()}
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
    if settings.get("model") in NGRAM_MODELS:
        settings |= {"model": None, "method": "ngram"}
    return settings


def note(flag: str) -> str:
    return f"{flag} is now {_BY_FLAG[flag].key} in --speculative-config; it is taken as that"


def take_out(flags: Sequence[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """The old flags among `flags`: their values, the other flags, and what to say about them."""
    given: dict[str, Any] = {}
    rest: list[str] = []
    notes: list[str] = []
    waiting = list(flags)
    while waiting:
        word = waiting.pop(0)
        flag, has_value, value = word.partition("=")
        flag = flag.replace("_", "-") if flag.startswith("--") else flag
        if flag in _DROPPED:
            notes.append(f"{flag} is left out: {_DROPPED[flag]}")
            if flag in _WITH_VALUE and not has_value and waiting:
                waiting.pop(0)
        elif flag in _BY_FLAG:
            if not has_value:
                if not waiting:
                    raise OptionError(f"{flag} needs a value")
                value = waiting.pop(0)
            given[flag] = _typed(_BY_FLAG[flag], value)
            notes.append(note(flag))
        else:
            rest.append(word)
    return given, rest, notes


def merged(speculation: Speculation, given: Mapping[str, Any]) -> Speculation:
    """The speculation with what old flags say; only its defaults give way to them."""
    if not given:
        return speculation
    settings = {_OURS.get(key, key): value for key, value in settings_of(given).items()}
    first = next(iter(given))
    if speculation.is_off:
        asked = Speculation.from_mapping(settings)
        raise OptionError(
            f"{first} says how to speculate, and speculation is off here; leave it out, or make it "
            f"the speculation: {json.dumps(asdict(asked))}"
        )
    for key, value in settings.items():
        now = getattr(speculation, key)
        if value is not None and now not in (value, getattr(OFF, key)):
            raise OptionError(
                f"old flags say {key} = {value!r}, the speculation says {now!r}; keep one"
            )
    return Speculation.from_mapping(
        asdict(speculation) | {k: v for k, v in settings.items() if v is not None}
    )


def _typed(old: OldFlag, value: str) -> Any:
    try:
        return old.type(value)
    except ValueError:
        raise OptionError(f"{old.flag} takes a number, got {value!r}") from None

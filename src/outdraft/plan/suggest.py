"""Drafts of the table for a target, the likeliest to pay first."""

from __future__ import annotations

import math
from dataclasses import dataclass

from outdraft.errors import OptionError
from outdraft.plan.budget import Settings, make_mix, ranks_of_draft
from outdraft.plan.devices import Devices
from outdraft.plan.findings import LARGEST_RATIO, MAX_DRAFT_SHARE, SMALLEST_RATIO
from outdraft.plan.models import Model, from_entry
from outdraft.plan.sizes import active_parameters, check_ranks, num_parameters
from outdraft.plan.table import TABLE

_BEST_RATIO = math.sqrt(SMALLEST_RATIO * LARGEST_RATIO)
_LEAST_RATIO = 2.0  # a draft of more than half the target's work or size cannot pay


@dataclass(frozen=True, slots=True)
class Suggestion:
    name: str
    quantization: str
    num_bytes: int  # on all devices together
    size_ratio: float
    memory_share: float | None  # of all devices' memory
    kv_tokens: int | None  # with it
    why: str


def suggest_drafts(
    target: Model, devices: Devices | None, settings: Settings, target_quantization: str
) -> tuple[Suggestion, ...]:
    found = []
    for entry in TABLE.values():
        draft = from_entry(entry)
        ratio = active_parameters(target.architecture) / active_parameters(draft.architecture)
        same = _is_same_vocabulary(target, draft)
        held = num_parameters(target.architecture) / num_parameters(draft.architecture)
        if same is None or min(ratio, held) < _LEAST_RATIO:
            continue
        try:
            if devices is not None:
                ranks = ranks_of_draft(settings, devices.count)
                check_ranks(draft.architecture, ranks, draft.name)
            mix = make_mix(target, draft, devices, settings, target_quantization, draft.published)
        except OptionError:  # its heads do not divide over the devices
            continue
        share = None if devices is None else mix.draft_bytes / devices.total_bytes
        room = mix.with_draft
        found.append(
            Suggestion(
                name=draft.name,
                quantization=draft.published,
                num_bytes=mix.draft_bytes,
                size_ratio=ratio,
                memory_share=share,
                kv_tokens=None if room is None else room.kv_tokens,
                why="; ".join([same, _ratio(ratio), *_rest(target, draft, share)]),
            )
        )
    # Those that leave no KV cache at all come last.
    return tuple(
        sorted(
            found,
            key=lambda each: (each.kv_tokens == 0, abs(math.log(each.size_ratio / _BEST_RATIO))),
        )
    )


def _is_same_vocabulary(target: Model, draft: Model) -> str | None:
    """How it is known; None when it is not the same."""
    if target.tokenizer is not None:
        return (
            f"same tokenizer ({draft.tokenizer})" if target.tokenizer == draft.tokenizer else None
        )
    ours, theirs = target.architecture, draft.architecture
    if (ours.family, ours.vocab_size) == (theirs.family, theirs.vocab_size):
        return f"same family and {ours.vocab_size} tokens (not compared one by one)"
    return None


def _ratio(ratio: float) -> str:
    if ratio < SMALLEST_RATIO:
        return f"1:{ratio:.0f} is large for a draft"
    if ratio > LARGEST_RATIO:
        return f"1:{ratio:.0f} is cheap, but may guess worse"
    return f"1:{ratio:.0f} is the usual ratio"


def _rest(target: Model, draft: Model, share: float | None) -> list[str]:
    told = []
    if share is not None:
        held = "within" if share <= MAX_DRAFT_SHARE else "over"
        told.append(f"{share:.0%} of memory, {held} {MAX_DRAFT_SHARE:.0%}")
    if target.architecture.vocab_size != draft.architecture.vocab_size:
        told.append("embedding padded differently: vLLM wants use_heterogeneous_vocab")
    if num_parameters(draft.architecture) != active_parameters(draft.architecture):
        told.append("a mixture of experts: all of it is held, part of it works")
    return told

"""Draft models of the table for a target, the most promising first."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from outdraft.errors import OptionError
from outdraft.plan.budget import Deployment, PlanSettings
from outdraft.plan.devices import Devices
from outdraft.plan.findings import LARGEST_RATIO, MAX_DRAFT_SHARE, SMALLEST_RATIO
from outdraft.plan.models import TABLE, Model
from outdraft.plan.sizes import active_parameters, num_parameters

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
    target: Model, devices: Devices | None, settings: PlanSettings, target_quantization: str
) -> tuple[Suggestion, ...]:
    suggestions = []
    for draft in TABLE.values():
        ratio = active_parameters(target.spec) / active_parameters(draft.spec)
        size_ratio = num_parameters(target.spec) / num_parameters(draft.spec)
        match = _vocabulary_match(target, draft)
        if match is None or min(ratio, size_ratio) < _LEAST_RATIO:
            continue
        quantization = draft.published_quantization
        deployment = Deployment(target, draft, devices, settings)
        try:
            deployment.check_split()
            mix = deployment.mix(target_quantization, quantization)
        except OptionError:  # its attention heads do not divide over the devices
            continue
        share = None if devices is None else mix.draft_bytes / devices.total_bytes
        suggestions.append(
            Suggestion(
                name=draft.name,
                quantization=quantization,
                num_bytes=mix.draft_bytes,
                size_ratio=ratio,
                memory_share=share,
                kv_tokens=None if mix.with_draft is None else mix.with_draft.kv_tokens,
                why="; ".join([match, *_reasons(target, draft, ratio, share)]),
            )
        )
    # Those that leave no KV cache at all come last.
    suggestions.sort(
        key=lambda each: (each.kv_tokens == 0, abs(math.log(each.size_ratio / _BEST_RATIO)))
    )
    return tuple(suggestions)


def _vocabulary_match(target: Model, draft: Model) -> str | None:
    """Why the two are taken to have one vocabulary; None when they do not."""
    if target.tokenizer is not None:
        same = target.tokenizer == draft.tokenizer
        return f"same tokenizer ({draft.tokenizer})" if same else None
    ours, theirs = target.spec, draft.spec
    if (ours.family, ours.vocab_size) == (theirs.family, theirs.vocab_size):
        return f"same family and {ours.vocab_size} tokens (not compared one by one)"
    return None


def _reasons(target: Model, draft: Model, ratio: float, share: float | None) -> Iterator[str]:
    if ratio < SMALLEST_RATIO:
        yield f"1:{ratio:.0f} is large for a draft"
    elif ratio > LARGEST_RATIO:
        yield f"1:{ratio:.0f} is cheap, but may guess worse"
    else:
        yield f"1:{ratio:.0f} is the usual ratio"
    if share is not None:
        within = "within" if share <= MAX_DRAFT_SHARE else "over"
        yield f"{share:.0%} of memory, {within} {MAX_DRAFT_SHARE:.0%}"
    if target.spec.vocab_size != draft.spec.vocab_size:
        yield "embedding padded differently: vLLM wants use_heterogeneous_vocab"
    if num_parameters(draft.spec) != active_parameters(draft.spec):
        yield "a mixture of experts: all of it is held, part of it works"

"""make_plan: models, devices and settings → everything a plan says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.errors import OptionError
from outdraft.plan.budget import Mix, Room, Settings, check_split, make_mix, shares_of
from outdraft.plan.devices import Devices
from outdraft.plan.findings import Finding, Shares, rules
from outdraft.plan.models import FILES, Model
from outdraft.plan.pairing import Pairing, check_target, pair
from outdraft.plan.reserve import ASSUMPTIONS
from outdraft.plan.sizes import (
    QUANTIZATIONS,
    active_parameters,
    kv_bytes_per_token,
    num_parameters,
    parameters_by_part,
    weight_bytes,
)
from outdraft.plan.suggest import Suggestion, suggest_drafts


@dataclass(frozen=True, slots=True)
class Plan:
    target: Model
    draft: Model | None
    devices: Devices | None
    settings: Settings
    headline: Mix
    mixes: tuple[Mix, ...]  # every quantization of the target with every one of the draft
    shares: Shares | None  # of memory, in the headline
    rules: tuple[Finding, ...]
    pairing: Pairing | None
    suggestions: tuple[Suggestion, ...] | None  # None: not asked for
    notes: tuple[str, ...]

    @property
    def room(self) -> Room | None:
        """The headline's, with the draft where there is one."""
        return self.headline.with_draft or self.headline.without

    def to_json(self) -> dict[str, Any]:
        return {
            "target": _model_json(self.target, self.settings.kv_dtype),
            "draft": self.draft and _model_json(self.draft, self.settings.kv_dtype),
            "devices": self.devices and {**asdict(self.devices), "bytes": self.devices.total_bytes},
            "settings": asdict(self.settings),
            "serves": self.headline.serves,
            "headline": _mix_json(self.headline),
            "mixes": [_mix_json(mix) for mix in self.mixes],
            "shares": self.shares and asdict(self.shares),
            "rules": [asdict(rule) for rule in self.rules],
            "pairing": self.pairing and asdict(self.pairing),
            "suggestions": None
            if self.suggestions is None
            else [asdict(each) for each in self.suggestions],
            "notes": list(self.notes),
            "assumptions": list(ASSUMPTIONS),
        }


def make_plan(
    target: Model,
    draft: Model | None,
    devices: Devices | None,
    settings: Settings,
    *,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
    suggest: bool = False,
) -> Plan:
    """A draft that cannot pair is a PairingError."""
    check_target(target)
    longest = target.architecture.max_context
    if settings.max_model_len > longest:
        raise OptionError(
            f"--max-model-len {settings.max_model_len} is more than {target.name} reads ({longest})"
        )
    pairing = None if draft is None else pair(target, draft, settings.max_model_len)
    check_split(target, draft, devices.count if devices else 1, settings)

    chosen = target_quantization or target.default_quantization
    chosen_draft = None if draft is None else draft_quantization or draft.default_quantization
    headline = make_mix(target, draft, devices, settings, chosen, chosen_draft)
    mixes = tuple(
        make_mix(target, draft, devices, settings, ours, theirs)
        for ours in QUANTIZATIONS
        for theirs in (QUANTIZATIONS if draft is not None else (None,))
    )
    room = headline.with_draft or headline.without
    shares = None if room is None or devices is None else shares_of(room, devices)
    return Plan(
        target=target,
        draft=draft,
        devices=devices,
        settings=settings,
        headline=headline,
        mixes=mixes,
        shares=shares,
        rules=() if shares is None else rules(shares, has_draft=draft is not None),
        pairing=pairing,
        suggestions=suggest_drafts(target, devices, settings, chosen) if suggest else None,
        notes=_notes(target, draft, settings),
    )


def _notes(target: Model, draft: Model | None, settings: Settings) -> tuple[str, ...]:
    notes = [f"{model.name}: {note}" for model in (target, draft) if model for note in model.notes]
    for model in (target, draft):
        windows = [each for each in model.architecture.layer_windows if each] if model else []
        if model is not None and windows:
            notes.append(
                f"{len(windows)} of {model.architecture.num_layers} layers of {model.name} see "
                f"{max(windows)} tokens back: they keep that and the "
                f"{settings.max_num_batched_tokens} being computed; KV tokens are counted at full "
                "length"
            )
    return tuple(notes)


def _model_json(model: Model, kv_dtype: str) -> dict[str, Any]:
    shape = model.architecture
    sizes: Mapping[str, Mapping[str, int]] = {
        each: weight_bytes(shape, each) for each in dict.fromkeys([*QUANTIZATIONS, model.published])
    }
    totals = {each: sum(parts.values()) for each, parts in sizes.items()}
    if model.file_bytes is not None:
        totals[FILES] = model.file_bytes
    return {
        "name": model.name,
        "source": model.source,
        "path": model.path and str(model.path),
        "architecture": asdict(shape),
        "parameters": num_parameters(shape),
        "active_parameters": active_parameters(shape),
        "parameters_by_part": parameters_by_part(shape),
        "bytes": totals,
        "bytes_by_part": {each: dict(parts) for each, parts in sizes.items()},
        "kv_bytes_per_token": kv_bytes_per_token(shape, kv_dtype),
    }


def _mix_json(mix: Mix) -> dict[str, Any]:
    return {**asdict(mix), "serves": mix.serves, "lost_share": mix.lost_share()}

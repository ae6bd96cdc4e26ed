"""plan_memory: models, devices and settings → everything that `outdraft plan` says."""

from dataclasses import asdict, dataclass
from typing import Any

from outdraft.errors import OptionError
from outdraft.modelspec import AnySpec, HeadSpec
from outdraft.plan.advice import helpful_changes
from outdraft.plan.budget import USUAL_MODEL_LEN, Deployment, Mix, PlanSettings, Room, shares_of
from outdraft.plan.devices import Devices
from outdraft.plan.findings import Check, Pairing, Shares, rules
from outdraft.plan.models import FILES, Model
from outdraft.plan.pairing import pair, target_spec
from outdraft.plan.reserve import ASSUMPTIONS
from outdraft.plan.sizes import (
    KV_DTYPES,
    QUANTIZATIONS,
    active_parameters,
    num_parameters,
    parameters_by_part,
    weight_bytes,
)
from outdraft.plan.suggest import Suggestion, suggest_drafts

# Keys of an architecture in JSON that heads do not have.
_MODELS_ONLY = {"tie_embeddings": False, "has_sinks": False, "experts": None, "latent": None}
_HEADS_ONLY = ("kind", "target_hidden_size", "draft_vocab_size", "has_embedding")


@dataclass(frozen=True, slots=True)
class Plan:
    target: Model
    draft: Model | None
    devices: Devices | None
    settings: PlanSettings
    headline: Mix
    mixes: tuple[Mix, ...]  # every quantization of the target with every one of the draft
    shares: Shares | None  # of memory, in the headline
    rules: tuple[Check, ...]
    pairing: Pairing | None
    suggestions: tuple[Suggestion, ...] | None  # None: not requested
    advice: tuple[str, ...]  # what would serve, or serve more; each was computed
    notes: tuple[str, ...]

    @property
    def room(self) -> Room | None:
        return self.headline.room

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "target": _model_json(self.target, self.settings.kv_dtype),
            "draft": self.draft and _model_json(self.draft, self.settings.kv_dtype),
            "devices": self.devices and {**asdict(self.devices), "bytes": self.devices.total_bytes},
            "serves": self.headline.serves,
            "headline": _mix_json(self.headline),
            "mixes": [_mix_json(mix) for mix in self.mixes],
            "rules": _checks_json(self.rules),
            "pairing": self.pairing
            and {**asdict(self.pairing), "findings": _checks_json(self.pairing.findings)},
            "assumptions": ASSUMPTIONS,
        }


def usual_length(target: Model) -> int:
    """Tokens of a text where nobody says how long texts are."""
    return min(USUAL_MODEL_LEN, target.spec.max_context)


def plan_memory(
    target: Model,
    draft: Model | None,
    devices: Devices | None,
    settings: PlanSettings,
    *,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
    suggest: bool = False,
) -> Plan:
    """Raises PairingError for a draft that no engine could run with the target."""
    longest = target_spec(target).max_context
    if settings.max_model_len > longest:
        raise OptionError(
            f"--max-model-len {settings.max_model_len} is more than {target.name} reads ({longest})"
        )
    pairing = None if draft is None else pair(target, draft, settings.max_model_len)
    deployment = Deployment(target, draft, devices, settings)
    deployment.check_split()

    chosen = target_quantization or target.default_quantization
    chosen_draft = None if draft is None else draft_quantization or draft.default_quantization
    headline = deployment.mix(chosen, chosen_draft)
    mixes = tuple(
        deployment.mix(ours, theirs)
        for ours in QUANTIZATIONS
        for theirs in (QUANTIZATIONS if draft is not None else (None,))
    )
    room = headline.room
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
        advice=tuple(helpful_changes(deployment, headline)),
        notes=_notes(target, draft, settings),
    )


def _notes(target: Model, draft: Model | None, settings: PlanSettings) -> tuple[str, ...]:
    notes = []
    for model in (target,) if draft is None else (target, draft):
        notes += [f"{model.name}: {note}" for note in model.notes]
        windows = [each for each in model.spec.windows if each]
        if windows:
            notes.append(
                f"{len(windows)} of {model.spec.num_layers} layers of {model.name} see "
                f"{max(windows)} tokens back: they keep that and the "
                f"{settings.max_num_batched_tokens} being computed; KV tokens are counted at full "
                "length"
            )
    return tuple(notes)


def _model_json(model: Model, kv_dtype: str) -> dict[str, Any]:
    shape = model.spec
    names = dict.fromkeys([*QUANTIZATIONS, model.published_quantization])
    sizes = {each: weight_bytes(shape, each) for each in names}
    totals = {each: sum(parts.values()) for each, parts in sizes.items()}
    if model.file_bytes is not None:
        totals[FILES] = model.file_bytes
    return {
        "name": model.name,
        "source": model.source,
        "path": model.path and str(model.path),
        "architecture": _spec_json(shape),
        "parameters": num_parameters(shape),
        "active_parameters": active_parameters(shape),
        "parameters_by_part": parameters_by_part(shape),
        "bytes": totals,
        "bytes_by_part": sizes,
        "kv_bytes_per_token": shape.kv_bytes_per_token(KV_DTYPES[kv_dtype]),
    }


def _spec_json(spec: AnySpec) -> dict[str, Any]:
    fields = {**_MODELS_ONLY, **asdict(spec), "head": None}
    if not any(spec.windows):
        fields["windows"] = []
    if isinstance(spec, HeadSpec):
        fields["head"] = {key: fields.pop(key) for key in _HEADS_ONLY} | {"taps": spec.layer_ids}
    return fields


def _checks_json(checks: tuple[Check, ...]) -> list[dict[str, Any]]:
    """A check's threshold is called limit in a plan."""
    fields = ("name", "state", "value", "advice")
    return [
        {key: getattr(each, key) for key in fields} | {"limit": each.threshold} for each in checks
    ]


def _mix_json(mix: Mix) -> dict[str, Any]:
    return {**asdict(mix), "serves": mix.serves, "lost_share": mix.lost_share()}

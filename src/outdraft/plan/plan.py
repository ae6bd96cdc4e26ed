"""plan_memory: models, devices and settings → everything that `outdraft plan` says."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.errors import OptionError
from outdraft.modelspec import AnySpec, HeadSpec, MedusaSpec, MtpSpec
from outdraft.plan.advice import helpful_changes
from outdraft.plan.budget import USUAL_MODEL_LEN, Deployment, Mix, PlanSettings, Room, shares_of
from outdraft.plan.devices import Devices
from outdraft.plan.findings import Check, Pairing, Shares, rules
from outdraft.plan.models import FILES, Model, mtp_draft
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
from outdraft.speculation import LOOKED_UP, WITH_DRAFT

_METHODS: Mapping[type, str] = {HeadSpec: "eagle", MedusaSpec: "medusa", MtpSpec: "mtp"}
# Keys of an architecture in JSON that heads do not have.
_MODELS_ONLY = {
    "tie_embeddings": False,
    "has_sinks": False,
    "experts": None,
    "latent": None,
    "mtp_layers": 0,
}
_HEADS_ONLY = ("kind", "target_hidden_size", "draft_vocab_size", "has_embedding")
_MEDUSA_ONLY = ("num_guesses", "num_blocks", "has_bias", "shares_output")


@dataclass(frozen=True, slots=True)
class Plan:
    target: Model
    draft: Model | None  # also the target's own MTP layers
    method: str  # that the room with speculation is for; "off" where there is none
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
    method: str | None = None,
    target_quantization: str | None = None,
    draft_quantization: str | None = None,
    suggest: bool = False,
) -> Plan:
    """Raises PairingError for a draft that no engine could run with the target. `method`: None for
    that of the draft."""
    longest = target_spec(target).max_context
    if settings.max_model_len > longest:
        raise OptionError(
            f"--max-model-len {settings.max_model_len} is more than {target.name} reads ({longest})"
        )
    if method == "mtp" and draft is None:
        draft = mtp_draft(target)
    method = _checked_method(method, draft, settings.k)
    pairing = None if draft is None else pair(target, draft, settings.max_model_len)
    looks_up = method in LOOKED_UP or (method == "auto" and draft is None)
    deployment = Deployment(target, draft, devices, settings, looks_up)
    deployment.check_split()

    chosen = target_quantization or target.default_quantization
    chosen_draft: str | None = None
    own: Sequence[str | None] | None = None  # quantizations of the draft; None: the target's
    if draft is None:
        own = (None,)
    elif isinstance(draft.spec, MtpSpec):  # engines take it as they take the target
        chosen_draft = draft_quantization or chosen
    else:
        chosen_draft, own = draft_quantization or draft.default_quantization, QUANTIZATIONS
    headline = deployment.mix(chosen, chosen_draft)
    mixes = tuple(
        deployment.mix(ours, theirs) for ours in QUANTIZATIONS for theirs in own or (ours,)
    )
    room = headline.room
    shares = None if room is None or devices is None else shares_of(room, devices)
    return Plan(
        target=target,
        draft=draft,
        method=method,
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


def _checked_method(method: str | None, draft: Model | None, k: int) -> str:
    """The one that is meant; OptionError where the draft is of another kind, or too short."""
    if draft is None:
        if method in WITH_DRAFT:
            raise OptionError(f"method {method} needs a draft; name one with --draft")
        return method or "off"
    fitting = _METHODS.get(type(draft.spec), "draft_model")
    if method == "off" or method in LOOKED_UP:
        raise OptionError(f"method {method} has no draft, got {draft.name}; leave one of them out")
    if method not in (None, "mtp", "auto", fitting):
        raise OptionError(f"{draft.name} is for method {fitting}, not {method}")
    if isinstance(draft.spec, MedusaSpec) and k > draft.spec.num_guesses:
        raise OptionError(
            f"--k {k} is more than the {draft.spec.num_guesses} tokens that {draft.name} guesses"
        )
    return method or fitting


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
    if isinstance(spec, MedusaSpec):
        own = {key: fields.pop(key) for key in _MEDUSA_ONLY}
        fields["head"] = {"kind": "medusa", **own}
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

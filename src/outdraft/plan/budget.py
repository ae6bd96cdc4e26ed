"""The memory of one device, by part, without speculation and with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outdraft.errors import OptionError, unknown_choice
from outdraft.plan.devices import Devices
from outdraft.plan.findings import Shares
from outdraft.plan.models import Model
from outdraft.plan.reserve import (
    COMMUNICATION_BYTES,
    RUNTIME_BYTES,
    activation_bytes,
    graph_bytes,
    logit_bytes,
)
from outdraft.plan.sizes import (
    KV_DTYPES,
    check_ranks,
    kv_bytes_of_sequence,
    kv_bytes_per_token,
)

BLOCK_TOKENS = 16  # a KV cache is handed out in blocks of so many tokens


@dataclass(frozen=True, slots=True)
class Settings:
    max_model_len: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    k: int = 5
    kv_dtype: str = "bfloat16"
    utilization: float = 0.92  # share of a device's memory that the engine may take
    draft_ranks: int | None = None  # None: as many as the target's
    is_probabilistic: bool = True  # drafts are sampled, and their logits kept for verification
    enforce_eager: bool = False
    kv_cache_bytes: int | None = None  # per device; given, the rest is not counted

    def __post_init__(self) -> None:
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "k"):
            if getattr(self, name) < 1:
                flag = f"--{name.replace('_', '-')}"
                raise OptionError(f"{flag} must be at least 1, got {getattr(self, name)}")
        if self.kv_dtype not in KV_DTYPES:
            raise unknown_choice("KV dtype", self.kv_dtype, KV_DTYPES)
        if not 0 < self.utilization <= 1:
            raise OptionError(
                f"--utilization must be above 0 and at most 1, got {self.utilization}"
            )


@dataclass(frozen=True, slots=True)
class Room:
    """The fullest device."""

    parts: Mapping[str, int]  # bytes of everything that is not KV cache
    kv_cache_bytes: int  # what is left; below zero: so much is missing
    unused_bytes: int  # beyond the utilization
    kv_bytes_per_token: int
    kv_tokens: int
    full_sequences: float  # texts of max_model_len tokens that fit at once
    serves: bool  # at least one of them fits

    @property
    def reserve_bytes(self) -> int:
        return sum(size for name, size in self.parts.items() if not name.endswith("_weights"))


@dataclass(frozen=True, slots=True)
class Mix:
    """One quantization of the target with one of the draft."""

    target_quantization: str
    draft_quantization: str | None
    target_bytes: int  # on all devices together
    draft_bytes: int
    left_bytes: int | None  # memory minus weights, before any reserve
    without: Room | None  # None where no memory is given
    with_draft: Room | None

    @property
    def serves(self) -> bool | None:
        room = self.with_draft or self.without
        return None if room is None else room.serves

    def lost_share(self) -> float | None:
        """Of the KV tokens, what speculation costs."""
        if self.without is None or self.with_draft is None or not self.without.kv_tokens:
            return None
        return 1 - self.with_draft.kv_tokens / self.without.kv_tokens


def make_mix(
    target: Model,
    draft: Model | None,
    devices: Devices | None,
    settings: Settings,
    target_quantization: str,
    draft_quantization: str | None,
) -> Mix:
    ranks = devices.count if devices else 1
    draft_ranks = ranks_of_draft(settings, ranks)
    target_bytes = ranks * target.weight_bytes(target_quantization, ranks)
    draft_bytes = (
        0
        if draft is None or draft_quantization is None
        else draft_ranks * draft.weight_bytes(draft_quantization, draft_ranks)
    )
    has_room = devices is not None or settings.kv_cache_bytes is not None
    without = with_draft = None
    if has_room:
        without = make_room(target, None, devices, settings, target_quantization, None)
        if draft is not None:
            with_draft = make_room(
                target, draft, devices, settings, target_quantization, draft_quantization
            )
    left = None if devices is None else devices.total_bytes - target_bytes - draft_bytes
    return Mix(
        target_quantization,
        draft_quantization,
        target_bytes,
        draft_bytes,
        left,
        without,
        with_draft,
    )


def ranks_of_draft(settings: Settings, ranks: int) -> int:
    wanted = ranks if settings.draft_ranks is None else settings.draft_ranks
    if wanted not in (1, ranks):
        raise OptionError(
            f"--draft-tensor-parallel-size must be 1 or the number of devices ({ranks}), "
            f"got {wanted}"
        )
    return wanted


def check_split(target: Model, draft: Model | None, ranks: int, settings: Settings) -> None:
    check_ranks(target.architecture, ranks, target.name)
    if draft is not None:
        check_ranks(draft.architecture, ranks_of_draft(settings, ranks), draft.name)


def make_room(
    target: Model,
    draft: Model | None,
    devices: Devices | None,
    settings: Settings,
    target_quantization: str,
    draft_quantization: str | None,
) -> Room:
    """A draft on one device fills that one, and blocks are as many on every device: the fullest
    decides for all."""
    ranks = devices.count if devices else 1
    draft_ranks = ranks_of_draft(settings, ranks)
    k = 0 if draft is None else settings.k
    parts = {"target_weights": target.weight_bytes(target_quantization, ranks)}
    if draft is not None and draft_quantization is not None:
        parts["draft_weights"] = draft.weight_bytes(draft_quantization, draft_ranks)
        if settings.is_probabilistic:
            parts["draft_logits"] = logit_bytes(draft.architecture, settings.max_num_seqs * k)
    parts["activations"] = activation_bytes(
        target.architecture,
        num_tokens=settings.max_num_batched_tokens,
        num_rows=settings.max_num_seqs * (1 + k),
        ranks=ranks,
    )
    models = [target.architecture] + ([] if draft is None else [draft.architecture])
    if not settings.enforce_eager:
        parts["cuda_graphs"] = sum(
            graph_bytes(each, max_num_seqs=settings.max_num_seqs, k=k) for each in models
        )
    parts["runtime"] = RUNTIME_BYTES + (COMMUNICATION_BYTES if ranks > 1 else 0)

    each_ranks = (ranks, draft_ranks)
    per_token = sum(
        kv_bytes_per_token(each, settings.kv_dtype, n)
        for each, n in zip(models, each_ranks, strict=False)
    )
    per_sequence = sum(
        kv_bytes_of_sequence(
            each, settings.max_model_len, settings.kv_dtype, n,
            chunk=settings.max_num_batched_tokens,
        )
        for each, n in zip(models, each_ranks, strict=False)
    )  # fmt: skip
    unused = 0
    if settings.kv_cache_bytes is not None:
        pool = settings.kv_cache_bytes
    else:
        assert devices is not None
        usable = int(devices.bytes_each * settings.utilization)
        unused = devices.bytes_each - usable
        pool = usable - sum(parts.values())
    sequences = max(pool, 0) / per_sequence
    tokens = int(max(pool, 0) * settings.max_model_len // per_sequence)
    return Room(
        parts=parts,
        kv_cache_bytes=pool,
        unused_bytes=unused,
        kv_bytes_per_token=per_token,
        kv_tokens=tokens // BLOCK_TOKENS * BLOCK_TOKENS,
        full_sequences=sequences,
        serves=sequences >= 1,
    )


def shares_of(room: Room, devices: Devices) -> Shares:
    whole = devices.bytes_each
    return Shares(
        target=room.parts["target_weights"] / whole,
        draft=room.parts.get("draft_weights", 0) / whole,
        headroom=room.kv_cache_bytes / whole,
    )

"""The memory of one device, by part, without speculation and with it."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from outdraft.errors import OptionError, unknown_choice
from outdraft.modelspec import AnySpec
from outdraft.plan import reserve
from outdraft.plan.devices import Devices
from outdraft.plan.findings import Shares
from outdraft.plan.models import Model
from outdraft.plan.sizes import KV_DTYPES, check_ranks, kv_bytes_of_sequence

BLOCK_TOKENS = 16  # a KV cache is allocated in blocks of this many tokens
USUAL_MODEL_LEN = (
    8192  # tokens of a text where nobody says: few have the context that a model reads
)


@dataclass(frozen=True, slots=True)
class PlanSettings:
    max_model_len: int
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    k: int = 5
    kv_dtype: str = "bfloat16"
    utilization: float = 0.92  # share of a device's memory that the engine may take
    draft_ranks: int | None = None  # None: as many as the target's
    is_probabilistic: bool = False  # drafts are sampled, and their logits kept for verification
    enforce_eager: bool = False
    kv_cache_bytes: int | None = None  # per device; if set, nothing else is counted

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
    """Where the memory of the fullest device goes."""

    parts: Mapping[str, int]  # bytes of everything that is not KV cache
    kv_cache_bytes: int  # what is left; below zero: how much is missing
    unused_bytes: int  # beyond the utilization
    kv_bytes_per_token: int
    kv_tokens: int
    full_sequences: float  # texts of max_model_len tokens that fit at once
    serves: bool  # at least one of them fits
    longest_text: int  # tokens of the longest that fits alone, at most what the target reads

    @property
    def reserve_bytes(self) -> int:
        return sum(size for name, size in self.parts.items() if not name.endswith("_weights"))


@dataclass(frozen=True, slots=True)
class Mix:
    """One quantization of the target with one of the draft. A method that looks tokens up has no
    draft, but verifies as many tokens: it has a room of its own too."""

    target_quantization: str
    draft_quantization: str | None
    target_bytes: int  # on all devices together
    draft_bytes: int
    left_bytes: int | None  # memory minus weights, before any reserve
    without: Room | None  # None where no memory is given
    with_draft: Room | None

    @property
    def room(self) -> Room | None:
        """With the draft where there is one."""
        return self.with_draft or self.without

    @property
    def serves(self) -> bool | None:
        return None if self.room is None else self.room.serves

    def lost_share(self) -> float | None:
        """The share of the KV tokens that speculation costs."""
        if self.without is None or self.with_draft is None or not self.without.kv_tokens:
            return None
        return 1 - self.with_draft.kv_tokens / self.without.kv_tokens


@dataclass(frozen=True, slots=True)
class Deployment:
    """A target, with a draft or without, on devices."""

    target: Model
    draft: Model | None
    devices: Devices | None  # None: no memory is given
    settings: PlanSettings
    looks_up: bool = False  # tokens are proposed without a draft

    @property
    def ranks(self) -> int:
        return self.devices.count if self.devices else 1

    @property
    def draft_ranks(self) -> int:
        wanted = self.settings.draft_ranks
        if wanted not in (None, 1, self.ranks):
            raise OptionError(
                f"--draft-tensor-parallel-size must be 1 or the number of devices ({self.ranks}), "
                f"got {wanted}"
            )
        return wanted or self.ranks

    def check_split(self) -> None:
        """Raises OptionError unless attention heads divide over the devices."""
        check_ranks(self.target.spec, self.ranks, self.target.name)
        if self.draft is not None:
            check_ranks(self.draft.spec, self.draft_ranks, self.draft.name)

    def mix(self, target_quantization: str, draft_quantization: str | None) -> Mix:
        target_bytes = self.ranks * self.target.weight_bytes(target_quantization, self.ranks)
        draft_bytes, left_bytes, without, with_draft = 0, None, None, None
        if self.draft is not None and draft_quantization is not None:
            ranks = self.draft_ranks
            draft_bytes = ranks * self.draft.weight_bytes(draft_quantization, ranks)
        if self.devices is not None:
            left_bytes = self.devices.total_bytes - target_bytes - draft_bytes
        if self.devices is not None or self.settings.kv_cache_bytes is not None:
            without = self.room(target_quantization, None)
            if self.draft is not None:
                with_draft = self.room(target_quantization, draft_quantization)
            elif self.looks_up:
                with_draft = self.room(target_quantization, None, k=self.settings.k)
        quantizations = target_quantization, draft_quantization
        return Mix(*quantizations, target_bytes, draft_bytes, left_bytes, without, with_draft)

    def room(
        self, target_quantization: str, draft_quantization: str | None = None, *, k: int = 0
    ) -> Room:
        """Memory of the fullest device; without a quantization of the draft, without the draft.
        `k`: tokens that are verified beside the next one, where no draft says it.

        All devices have the same number of KV blocks, so a draft on one device alone limits them
        all.
        """
        settings, ranks = self.settings, self.ranks
        models: list[tuple[AnySpec, int]] = [(self.target.spec, ranks)]
        parts = {"target_weights": self.target.weight_bytes(target_quantization, ranks)}
        if self.draft is not None and draft_quantization is not None:
            k = settings.k
            models.append((self.draft.spec, self.draft_ranks))
            draft_bytes = self.draft.weight_bytes(draft_quantization, self.draft_ranks)
            parts["draft_weights"] = draft_bytes
            if settings.is_probabilistic:
                parts["draft_logits"] = reserve.logit_bytes(
                    self.draft.spec, settings.max_num_seqs * k
                )
        num_seqs, chunk = settings.max_num_seqs, settings.max_num_batched_tokens
        parts["activations"] = reserve.activation_bytes(
            self.target.spec, num_tokens=chunk, num_rows=num_seqs * (1 + k), ranks=ranks
        )
        if not settings.enforce_eager:
            parts["cuda_graphs"] = sum(
                reserve.graph_bytes(spec, max_num_seqs=num_seqs, k=k) for spec, _ in models
            )
        parts["runtime"] = reserve.RUNTIME_BYTES + (reserve.COMMUNICATION_BYTES if ranks > 1 else 0)

        if settings.kv_cache_bytes is not None:
            unused, pool = 0, settings.kv_cache_bytes
        else:
            assert self.devices is not None
            usable = int(self.devices.bytes_each * settings.utilization)
            unused, pool = self.devices.bytes_each - usable, usable - sum(parts.values())
        length, kv_dtype = settings.max_model_len, settings.kv_dtype

        def kv_bytes(num_tokens: int) -> int:
            return sum(
                kv_bytes_of_sequence(spec, num_tokens, kv_dtype, n, chunk=chunk)
                for spec, n in models
            )

        per_sequence = kv_bytes(length)
        sequences = max(pool, 0) / per_sequence
        blocks = range(BLOCK_TOKENS, self.target.spec.max_context + 1, BLOCK_TOKENS)
        tokens = int(max(pool, 0) * length // per_sequence)
        return Room(
            parts=parts,
            kv_cache_bytes=pool,
            unused_bytes=unused,
            kv_bytes_per_token=sum(
                spec.kv_bytes_per_token(KV_DTYPES[kv_dtype], n) for spec, n in models
            ),
            kv_tokens=tokens // BLOCK_TOKENS * BLOCK_TOKENS,
            full_sequences=sequences,
            serves=sequences >= 1,
            longest_text=BLOCK_TOKENS * bisect_right(blocks, pool, key=kv_bytes),
        )


def shares_of(room: Room, devices: Devices) -> Shares:
    whole = devices.bytes_each
    return Shares(
        target=room.parts["target_weights"] / whole,
        draft=room.parts.get("draft_weights", 0) / whole,
        headroom=room.kv_cache_bytes / whole,
    )

"""The plan's word on a proposer before anything is started: does it fit, and beside what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from outdraft.backends.backend import Serving
from outdraft.decide.evidence import Memory, Pairing
from outdraft.errors import OutdraftError, PairingError
from outdraft.plan import Settings, find_model, make_plan
from outdraft.plan.devices import Devices, parse_gpu
from outdraft.plan.plan import Plan
from outdraft.speculation import WITH_DRAFT, Speculation
from outdraft.tune.results import MemoryResult

_LEAST_SEQUENCES = 1.0  # full-length texts that must fit at once


@dataclass(frozen=True, slots=True)
class Pruner:
    serving: Serving
    devices: Devices | None

    def unfit(self, proposer: Speculation) -> str | None:
        """Why it is not to be tried; None where it is, or where nothing can be said."""
        if proposer.method not in WITH_DRAFT or proposer.draft is None:
            return None
        try:
            plan = self._plan(proposer)
        except PairingError as error:
            return str(error)
        if plan is None or plan.room is None:
            return None
        if plan.room.kv_cache_bytes <= 0:
            missing = -plan.room.kv_cache_bytes / 1e9
            return f"it does not fit: {missing:.1f} GB are missing on the fullest device"
        if plan.room.full_sequences < _LEAST_SEQUENCES:
            return (
                f"it leaves room for {plan.room.kv_tokens} tokens of KV cache, less than one text "
                "of full length"
            )
        return None

    def memory(self, speculation: Speculation) -> MemoryResult | None:
        """For the report: where the memory goes with this speculation."""
        try:
            plan = self._plan(speculation)
        except OutdraftError:
            return None
        if plan is None:
            return None
        if plan.room is None or plan.devices is None:
            return MemoryResult(
                plan.headline.target_bytes, plan.headline.draft_bytes, 0, 0, 0,
                note="no device was named (--gpu), so only the weights are known",
            )  # fmt: skip
        room, count = plan.room, plan.devices.count
        total = plan.devices.total_bytes
        kv = max(room.kv_cache_bytes, 0) * count
        used = plan.headline.target_bytes + plan.headline.draft_bytes + kv
        return MemoryResult(
            plan.headline.target_bytes, plan.headline.draft_bytes, kv, max(total - used, 0), total,
            note=f"{plan.devices.name} × {count}; free is reserve and what stays unused",
        )  # fmt: skip

    def shares(self, speculation: Speculation) -> Memory | None:
        """For the checks on memory; None where no device was named."""
        try:
            plan = self._plan(speculation)
        except OutdraftError:
            return None
        if plan is None or plan.shares is None:
            return None
        return Memory(plan.shares.target, plan.shares.draft, plan.shares.headroom)

    def pairing(self, speculation: Speculation) -> Pairing | None:
        """For the checks on the pair; None without a draft."""
        try:
            plan = self._plan(speculation)
        except OutdraftError:
            return None
        if plan is None or plan.pairing is None:
            return None
        found = plan.pairing
        return Pairing(found.size_ratio, found.same_family, found.same_tokenizer)

    def _plan(self, speculation: Speculation) -> Plan | None:
        return _planned(self.serving, self.devices, speculation)


@cache
def _planned(serving: Serving, devices: Devices | None, speculation: Speculation) -> Plan | None:
    """None where a model's files are not to be had: then the engine will say."""
    try:
        target = find_model(serving.target)
        has_draft = speculation.method in WITH_DRAFT and speculation.draft is not None
        draft = find_model(speculation.draft or "") if has_draft else None
    except OutdraftError:
        return None
    quantization = None if speculation.quantization == "none" else speculation.quantization
    return make_plan(
        target,
        draft,
        devices,
        Settings(
            max_model_len=serving.max_model_len or target.architecture.max_context,
            max_num_seqs=serving.max_num_seqs or 256,
            k=speculation.k,
            draft_ranks=speculation.draft_tensor_parallel_size,
            is_probabilistic=speculation.rule == "rejection",
        ),
        draft_quantization=quantization if draft is not None else None,
    )


def pruner(serving: Serving, gpu: str | None) -> Pruner:
    return Pruner(serving, None if gpu is None else parse_gpu(gpu))

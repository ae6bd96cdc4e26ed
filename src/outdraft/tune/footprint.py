"""How much main memory the engines of a run take together, before any is started. Pure.

Of our own engine it is counted: weights as they are computed with, the KV cache that the loads
write to, and the process itself. Of another engine on a CPU it is a rule of thumb.
"""

from collections.abc import Sequence

from outdraft.modelspec import AnySpec
from outdraft.plan import Plan
from outdraft.plan.sizes import weights
from outdraft.plan.text import size_text

# Python, torch, the tokenizer and the server: 0.19 GB were seen
_PROCESS_BYTES = 200_000_000
_VALUE_BYTES = {"bfloat16": 2.0, "int8": 1.0, "int4": 0.5}  # else float32
_SHARE = 0.8  # of the free memory that engines may take: they are not all that runs
_FEWEST = 2  # off and the arm that is compared with it


def own_engine_bytes(
    plan: Plan, dtype: str | None, draft_quantization: str | None, kv_tokens: int
) -> int:
    """A process of our own engine, with the draft of the plan where a quantization of it is given.
    `kv_tokens`: of all texts that are written at a time, with their prompts."""
    value_bytes = _VALUE_BYTES.get(dtype or "", 4.0)
    total = _PROCESS_BYTES + _model_bytes(plan.target.spec, value_bytes, value_bytes, kv_tokens)
    if plan.draft is not None and draft_quantization is not None:
        packed = _VALUE_BYTES.get(draft_quantization, value_bytes)
        total += _model_bytes(plan.draft.spec, value_bytes, packed, kv_tokens)
    return int(total)


def _model_bytes(spec: AnySpec, value_bytes: float, packed_bytes: float, kv_tokens: int) -> float:
    total: float = spec.kv_bytes_per_token(round(value_bytes)) * kv_tokens
    for each in weights(spec):
        total += each.values * (packed_bytes if each.is_quantized else value_bytes)
    return total


def most_together(sizes: Sequence[int], free: int | None) -> int | None:
    """How many engines of these sizes may be up at a time; None: all."""
    if free is None or sum(sizes) <= _SHARE * free:
        return None
    most = max(_FEWEST, int(_SHARE * free // max(sizes)))
    return None if most >= len(sizes) else most


def memory_words(sizes: Sequence[int], free: int | None, most: int | None) -> str:
    """What engines of these sizes take, for people."""
    together = sizes if most is None else sorted(sizes)[-most:]
    words = f"{len(together)} engines side by side take about {size_text(sum(together))} of memory"
    words += "" if free is None else f", {size_text(free)} are free"
    if most is None:
        return words
    return f"{words}; the {len(sizes)} of this run are too many: some are started again when needed"

"""Records by hand, in milliseconds."""

from __future__ import annotations

from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.records import Record


def done(index: int = 0, e2e: float = 100, **fields: Any) -> Record:
    """Ended `e2e` ms after it was due; by default 11 tokens, the first after a tenth of that."""
    start = int(fields.pop("at", 0) * 1e6)
    ttft = fields.pop("ttft", e2e / 10)
    return Record(
        **{
            "prompt_id": f"p{index}",
            "category": "chat",
            "temperature": 0.0,
            "arm": "a",
            "block": 0,
            "index": index,
            "scheduled_ns": start,
            "sent_ns": start,
            "first_ns": start + int(ttft * 1e6),
            "last_ns": start + int(e2e * 1e6),
            "completion_tokens": 11,
            "finish_reason": "stop",
            "text": "eleven words",
            **fields,
        }
    )


def failed(index: int = 0, error: str = "http 503: full", **fields: Any) -> Record:
    values = {"category": "chat", "temperature": 0.0, "arm": "a", "block": 0, **fields}
    return Record(prompt_id=f"p{index}", index=index, scheduled_ns=0, error=error, **values)


def accepted(drafts: int, drafted: int, taken: int, *places: tuple[int, int]) -> Acceptance:
    """`places`: (rounds that accepted it, rounds that had it), from the first on."""
    return Acceptance(
        drafts,
        drafted,
        taken,
        accepted_per_position=[a for a, _ in places],
        drafted_per_position=[d for _, d in places],
    )

"""What was measured: one Record per request, integers of nanoseconds, versioned JSON.

All times are of one clock of the client that never steps (time.perf_counter_ns); `Trial` says
when that clock's zero was on the wall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class AcceptanceCounts:
    """What speculation did for one request, as the server counts it."""

    num_drafts: int  # rounds with a draft
    num_draft_tokens: int
    num_accepted_tokens: int
    accepted_per_position: tuple[int, ...] = ()  # rounds in which that place was accepted
    drafted_per_position: tuple[int, ...] = ()  # rounds that had that place; () if not told

    @property
    def rate(self) -> float | None:
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def length(self) -> float | None:
        return 1 + self.num_accepted_tokens / self.num_drafts if self.num_drafts else None


@dataclass(frozen=True, slots=True)
class Record:
    """One request. What did not happen is None; `error` says why."""

    prompt_id: str
    category: str
    temperature: float
    arm: str
    block: int
    index: int  # place in its block
    scheduled_ns: int
    sent_ns: int | None = None
    first_ns: int | None = None  # the first chunk with text
    last_ns: int | None = None  # the last one
    chunk_ns: tuple[int, ...] = ()  # every chunk with text
    prompt_tokens: int | None = None  # the server's counts
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    acceptance: AcceptanceCounts | None = None
    text: str | None = None
    error: str | None = None
    is_warmup: bool = False

    @property
    def ok(self) -> bool:
        return self.error is None and self.last_ns is not None

    @property
    def lag_ns(self) -> int | None:
        """How late the client itself was."""
        return None if self.sent_ns is None else self.sent_ns - self.scheduled_ns

    @property
    def ttft_ns(self) -> int | None:
        """From the moment it should have been sent: a late client hides nothing."""
        return None if self.first_ns is None else self.first_ns - self.scheduled_ns

    @property
    def e2e_ns(self) -> int | None:
        return None if self.last_ns is None else self.last_ns - self.scheduled_ns

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token behind the first, by the server's own token count."""
        if self.first_ns is None or self.last_ns is None or (self.completion_tokens or 0) < 2:
            return None
        return (self.last_ns - self.first_ns) / ((self.completion_tokens or 0) - 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """One arm under one load."""

    arm: str
    url: str
    load: Mapping[str, Any]  # how requests arrived
    records: tuple[Record, ...]
    started_at: str  # wall clock, ISO 8601, UTC
    environment: Mapping[str, Any] = field(default_factory=dict)
    server_metrics: Mapping[str, float] = field(default_factory=dict)  # after minus before
    is_valid: bool = True
    problems: tuple[str, ...] = ()  # why it is not, or what to know

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self)}


def trial_from_json(data: Mapping[str, Any]) -> Trial:
    """The inverse of `Trial.to_json`. Raises ValueError for another schema."""
    if data.get("schema") != SCHEMA:
        raise ValueError(f"schema {data.get('schema')!r}, this version reads {SCHEMA}")
    values = {key: value for key, value in data.items() if key != "schema"}
    values["records"] = tuple(record_from_json(each) for each in values["records"])
    values["problems"] = tuple(values.get("problems", ()))
    return Trial(**values)


def record_from_json(data: Mapping[str, Any]) -> Record:
    values = dict(data)
    counts = values.get("acceptance")
    if counts is not None:
        values["acceptance"] = counts_from_json(counts)
    return Record(**_with_tuples(values))


def counts_from_json(data: Mapping[str, Any]) -> AcceptanceCounts:
    return AcceptanceCounts(**_with_tuples(data))


def _with_tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has lists where records have tuples."""
    return {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}

"""What was measured: one record per request, as objects, as JSON, and in a journal on disk.

All times are nanoseconds of the client's monotonic clock (time.perf_counter_ns).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.errors import CorruptFileError, OutdraftError
from outdraft.line_file import LineFile, parse_entries, whole_lines

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One measured request. What did not happen is None; `error` says why."""

    prompt_id: str
    category: str
    temperature: float
    arm: str
    block: int
    index: int  # within its block; negative: it led to those that count
    scheduled_ns: int  # when it was due
    sent_ns: int | None = None
    first_ns: int | None = None  # the first chunk with text
    last_ns: int | None = None  # the last chunk with text
    chunk_ns: tuple[int, ...] = ()  # all chunks with text
    prompt_tokens: int | None = None  # as the server counts
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    finish_reason: str | None = None
    acceptance: Acceptance | None = None
    text: str | None = None
    error: str | None = None
    is_warmup: bool = False
    turn: int = 0  # of its session

    @property
    def ok(self) -> bool:
        return self.error is None and self.last_ns is not None

    @property
    def lag_ns(self) -> int | None:
        """How late the client sent it."""
        return None if self.sent_ns is None else self.sent_ns - self.scheduled_ns

    @property
    def ttft_ns(self) -> int | None:
        """From the time it was due, so that a late client cannot hide a slow server."""
        return None if self.first_ns is None else self.first_ns - self.scheduled_ns

    @property
    def e2e_ns(self) -> int | None:
        return None if self.last_ns is None else self.last_ns - self.scheduled_ns

    @property
    def tpot_ns(self) -> float | None:
        """Time per output token after the first, by the server's own token count."""
        if self.first_ns is None or self.last_ns is None or (self.completion_tokens or 0) < 2:
            return None
        return (self.last_ns - self.first_ns) / ((self.completion_tokens or 0) - 1)


@dataclass(frozen=True, slots=True)
class Trial:
    """One arm under one load."""

    arm: str
    url: str
    load: Mapping[str, Any]  # how requests were sent
    records: tuple[Record, ...]
    started_at: str  # wall clock, ISO 8601, UTC
    environment: Mapping[str, Any] = field(default_factory=dict)
    server_metrics: Mapping[str, float] = field(default_factory=dict)  # after minus before
    is_valid: bool = True
    problems: tuple[str, ...] = ()  # why it is not valid, or remarks

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
    values["chunk_ns"] = tuple(values.get("chunk_ns", ()))
    if values.get("acceptance") is not None:
        values["acceptance"] = Acceptance.from_json(values["acceptance"])
    return Record(**values)


_PLAIN_FIELDS = tuple(each.name for each in fields(Record) if each.name != "acceptance")


def record_to_json(record: Record) -> dict[str, Any]:
    """The inverse of `record_from_json`. dataclasses.asdict would copy every chunk time."""
    values = {name: getattr(record, name) for name in _PLAIN_FIELDS}
    values["acceptance"] = None if record.acceptance is None else asdict(record.acceptance)
    return values


class RecordJournal(LineFile):
    """Records on disk as they arrive. The first line holds the schema, each other one a record."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(Path(path))
        if lines := self.lines():
            _check_header(self.path, lines)
        else:
            self.append({"schema": SCHEMA})

    def add(self, record: Record) -> None:
        self.append(record_to_json(record))


def read_record_journal(path: Path | str) -> list[Record]:
    """The records of all whole lines. A torn last line is left out; any other bad line raises."""
    path = Path(path)
    try:
        lines = whole_lines(path.read_bytes())
    except OSError as error:
        raise OutdraftError(f"cannot read the journal {path}: {error.strerror}") from error
    _check_header(path, lines)
    return list(parse_entries(path, lines, record_from_json, "remove the line to read the rest"))


def _check_header(path: Path, lines: list[bytes]) -> None:
    try:
        schema = json.loads(lines[0])["schema"] if lines else SCHEMA
    except (ValueError, TypeError, KeyError):
        schema = None
    if schema != SCHEMA:
        raise CorruptFileError(
            f"{path} is no journal of schema {SCHEMA} (it has {schema!r}); give another path"
        )

"""Everything a tuning run has measured, on disk after every block.

The run keeps no other state: what it measures next follows from these entries alone. So a run that
was killed continues where it was, and ends as if it had never been interrupted.
"""

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.errors import CorruptFileError, OptionError
from outdraft.line_file import LineFile, parse_entries, whole_lines
from outdraft.measure.plateau import is_lead
from outdraft.observe import Written
from outdraft.records import Record, record_from_json, record_to_json

SCHEMA = 1
SHORTEST_START_S = 0.5  # what takes less is no start worth waiting for


@dataclass(frozen=True, slots=True)
class Block:
    """Requests of one arm in a row, under one load."""

    load: str
    arm: str
    block: int
    duration_s: float  # includes the start of an engine, where one was needed
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()  # why its times are not the server's
    counted: Acceptance | None = None  # by the server's own counters
    written: Written | None = None  # what those are over: requests that do not count, too
    # Tokens of a step → seconds, where the engine reports them.
    step_seconds: Mapping[int, float] = field(default_factory=dict)
    start_s: float = 0.0  # the part of the duration that the start of an engine took
    busy: str = ""  # what else the machine did meanwhile, where that may have slowed it down
    is_again: bool = False  # it takes the place of a block that was marked
    running: float | None = None  # requests on its plateau, as the server counts; the mean

    @property
    def is_marked(self) -> bool:
        """By the machine and the client, never by how fast it was."""
        return bool(self.busy or self.problems)


@dataclass(frozen=True, slots=True)
class Failure:
    """An arm that could not be measured; it is not tried again, unless a `Retry` follows."""

    load: str
    arm: str
    reason: str
    duration_s: float
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Retry:
    """From here on, the failures before it count no more, nor does the time they took."""

    arms: tuple[tuple[str, str], ...]  # (load, name of the arm) of each


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """What an answer takes without speculation, under one load; blocks are sized by it."""

    load: str
    seconds: float
    duration_s: float
    start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """The start of an engine before the block that needs it; whether it succeeded shows there."""

    load: str
    arm: str
    duration_s: float

    @property
    def start_s(self) -> float:
        return self.duration_s


Entry = Block | Failure | Retry | AnswerTime | Start


class Journal(LineFile):
    """`header` identifies the run: a journal with another header is refused."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        super().__init__(path)
        self.blocks: dict[tuple[str, str, int], Block] = {}
        self.failures: dict[tuple[str, str], Failure] = {}
        self.answer_times: dict[str, AnswerTime] = {}  # by the name of a load
        self.starts: list[Start] = []
        self.replaced: list[Block] = []  # blocks that were measured again; their time is spent
        self.is_resumed = False
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            self._lock()
            self._read(json.loads(json.dumps({"schema": SCHEMA, **header})))
        except BaseException:
            self.close()
            raise

    def add(self, entry: Entry) -> None:
        """Returns when the entry is on the disk."""
        self.append({type(entry).__name__.lower(): _to_json(entry)}, is_synced=True)
        self._keep(entry)

    def retry_failed(self) -> None:
        """Arms that failed count as not measured yet."""
        if self.failures:
            self.add(Retry(tuple(self.failures)))

    def elapsed_s(self, load: str | None = None) -> float:
        """Seconds of measuring, under one load or all, before a kill and after it."""
        return sum(each.duration_s for each in self._timed() if load in (None, each.load))

    def starts_s(self, load: str | None = None) -> float:
        """The part of `elapsed_s` in which engines started."""
        return sum(self.each_start_s(load))

    def each_start_s(self, load: str | None = None) -> list[float]:
        """The same, one by one."""
        return [each.start_s for each in self._timed() if load in (None, each.load)]

    def _timed(self) -> Iterator[Block | Failure | AnswerTime | Start]:
        yield from self.answer_times.values()
        yield from self.starts
        yield from self.replaced
        yield from self.blocks.values()
        yield from self.failures.values()

    def of(self, load: str, arm: str) -> list[Block]:
        """Blocks of one arm under one load, by number."""
        own = [each for each in self.at(load) if each.arm == arm]
        return sorted(own, key=lambda each: each.block)

    def at(self, load: str) -> list[Block]:
        """Blocks of all arms under one load, as they were measured."""
        return [each for each in self.blocks.values() if each.load == load]

    def failures_at(self, load: str) -> dict[str, str]:
        """Names of arms → why they failed under this load."""
        return {arm: each.reason for (where, arm), each in self.failures.items() if where == load}

    @property
    def num_requests(self) -> int:
        return sum(not each.is_warmup for block in self.blocks.values() for each in block.records)

    def _lock(self) -> None:
        """Holds until the file is closed. Two runs at once would disturb each other's times."""
        try:
            fcntl.flock(self.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OptionError(
                f"another run is at work in {self.path.parent}; wait for its end, or give "
                "another --out"
            ) from None

    def _read(self, header: dict[str, Any]) -> None:
        first = whole_lines(self.path.read_bytes())[:1]
        # A file that is refused stays as it is, a torn end included.
        seen = _check_header(self.path, first[0], header) if first else {}
        lines = self.lines()
        if not lines:
            self.append({**header, "started_at": self.started_at}, is_synced=True)
            return
        self.started_at = seen.get("started_at", "")
        self.is_resumed = len(lines) > 1
        for entry in parse_entries(self.path, lines, _from_json, "remove the file to measure anew"):
            self._keep(entry)

    def _keep(self, entry: Entry) -> None:
        match entry:
            case Block():
                key = entry.load, entry.arm, entry.block
                if first := self.blocks.get(key):
                    self.replaced.append(first)
                    entry = _with_texts_of(first, entry)
                self.blocks[key] = entry
            case Failure():
                self.failures[entry.load, entry.arm] = entry
            case AnswerTime():
                self.answer_times[entry.load] = entry
            case Start():
                self.starts.append(entry)
            case Retry():
                for each in entry.arms:
                    self.failures.pop(each, None)


def _with_texts_of(first: Block, again: Block) -> Block:
    """Prompts that are sent again have another mark before them, and may have other answers. Texts
    are compared with those of blocks that were sent once: the first answers are."""
    texts = {each.index: each.text for each in first.records}
    records = (replace(each, text=texts.get(each.index)) for each in again.records)
    return replace(again, records=tuple(records))


def valid_blocks(blocks: Iterable[Block], before: int | None = None) -> list[Block]:
    """Those in which the client was fit to measure, up to block number `before`."""
    last = float("inf") if before is None else before
    return [each for each in blocks if each.block < last and not each.problems]


def paired_blocks(blocks: Iterable[Block], others: Iterable[Block]) -> list[Block]:
    """Valid ones that the others have a valid one beside: a speedup is of these alone."""
    numbers = {each.block for each in valid_blocks(others)}
    return [each for each in valid_blocks(blocks) if each.block in numbers]


def valid_records(blocks: Iterable[Block], before: int | None = None) -> list[Record]:
    return [record for block in valid_blocks(blocks, before) for record in block.records]


def done_records(blocks: Iterable[Block]) -> list[Record]:
    """Requests that succeeded."""
    return [each for block in blocks for each in block.records if each.ok and not each.is_warmup]


def count_drafts(blocks: Sequence[Block]) -> tuple[Acceptance, int, int]:
    """Acceptance, and the tokens and texts it was counted over: those of the requests that count,
    where answers report rounds and positions; else what the server's counters say of all that it
    was sent in these blocks, leads and fillers too."""
    records = [each for block in blocks for each in block.records if not each.is_warmup]
    if are_drafts_reported(blocks):
        records = [each for each in records if each.acceptance is not None]
        acceptance = Acceptance.total(each.acceptance for each in records)
    else:
        acceptance = Acceptance.total(each.counted for each in blocks)
        written = [each.written for each in blocks if each.written is not None]
        if len(written) == len(blocks):
            whole = Written.total(written)
            return acceptance, whole.num_tokens, whole.num_texts
        records = [each for block in blocks for each in block.records if _is_sent(each)]
    return acceptance, sum(each.completion_tokens or 0 for each in records), len(records)


def _is_sent(record: Record) -> bool:
    return not record.is_warmup or is_lead(record)


def are_drafts_reported(blocks: Sequence[Block]) -> bool:
    """Whether `count_drafts` takes the answers' counts, not the server's counters."""
    records = [each for block in blocks for each in block.records if not each.is_warmup]
    has_counters = any(each.counted is not None for each in blocks)
    return not has_counters or has_rounds(Acceptance.total(each.acceptance for each in records))


def has_rounds(acceptance: Acceptance) -> bool:
    """Whether rounds and positions were counted, not accepted tokens alone."""
    return bool(acceptance.num_drafts and acceptance.accepted_per_position)


def _check_header(path: Path, line: bytes, wanted: dict[str, Any]) -> dict[str, Any]:
    try:
        seen: dict[str, Any] = {**json.loads(line)}  # raises for anything but an object
        other = [key for key in seen.keys() & wanted.keys() if seen[key] != wanted[key]]
    except (ValueError, TypeError):
        raise CorruptFileError(f"{path} is no journal; give another --out") from None
    remedy = "give another --out, or remove the folder to measure anew"
    for key in sorted(other, key=list(wanted).index):
        raise OptionError(
            f"{path.parent} holds a run with another {key} ({_short(seen[key])}, "
            f"now {_short(wanted[key])}); {remedy}"
        )
    if missing := [key for key in wanted if key not in seen]:
        some = ", ".join(missing[:3]) + (", …" if len(missing) > 3 else "")
        raise OptionError(f"{path.parent} holds a run that does not say its {some}; {remedy}")
    return seen


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _to_json(entry: Entry) -> dict[str, Any]:
    values = {each.name: getattr(entry, each.name) for each in fields(entry)}
    if isinstance(entry, Block):
        for name in ("counted", "written"):
            values[name] = None if values[name] is None else asdict(values[name])
        values["records"] = [record_to_json(each) for each in entry.records]
    return values


def _from_json(data: Mapping[str, Any]) -> Entry:
    if "retry" in data:
        return Retry(tuple((load, arm) for load, arm in data["retry"]["arms"]))
    if "answertime" in data:
        return AnswerTime(**data["answertime"])
    if "start" in data:
        return Start(**data["start"])
    if "failure" in data:
        return Failure(**data["failure"])
    values = dict(data["block"])
    values["records"] = tuple(map(record_from_json, values["records"]))
    values["problems"] = tuple(values["problems"])
    values["step_seconds"] = {int(size): each for size, each in values["step_seconds"].items()}
    if values["counted"] is not None:
        values["counted"] = Acceptance.from_json(values["counted"])
    if values.get("written") is not None:
        values["written"] = Written(**values["written"])
    return Block(**values)

"""Everything a tuning run has measured, on disk after every block.

The run itself remembers nothing: what it does next follows from these entries alone. So a run
that was killed goes on where it was, and ends as if it had never been interrupted.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from outdraft.errors import CorruptFileError, OptionError
from outdraft.line_file import LineFile
from outdraft.loadgen.journal import record_to_json
from outdraft.records import AcceptanceCounts, Record, counts_from_json, record_from_json

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Block:
    """One slice of the plan on one arm."""

    load: str
    arm: str
    block: int
    duration_s: float  # the start of an engine included, where one was needed
    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()  # why its times are not the server's
    counted: AcceptanceCounts | None = None  # by the server's own counters
    step_seconds: Mapping[int, float] = field(default_factory=dict)  # tokens → seconds, if told
    start_s: float = 0.0  # of the duration, what the start of an engine took


@dataclass(frozen=True, slots=True)
class Failure:
    """An arm that could not be measured; it is not tried again."""

    load: str
    arm: str
    reason: str
    duration_s: float


class Journal:
    """`header` identifies the run: a folder with another one's journal is refused."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.path = path
        self.blocks: dict[tuple[str, str, int], Block] = {}
        self.failures: dict[tuple[str, str], Failure] = {}
        self.is_resumed = False
        self.started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._file = LineFile(path)
        try:
            self._lock()
            self._read(json.loads(json.dumps({"schema": SCHEMA, **header})))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def add(self, entry: Block | Failure) -> None:
        """On the disk when this returns."""
        kind = "block" if isinstance(entry, Block) else "failure"
        self._file.append({kind: _to_json(entry)}, is_synced=True)
        self._keep(entry)

    def elapsed_s(self, load: str | None = None) -> float:
        """What the measuring has taken, in this run and those before it."""
        entries: list[Block | Failure] = [*self.blocks.values(), *self.failures.values()]
        return sum(each.duration_s for each in entries if load in (None, each.load))

    def of(self, load: str, arm: str) -> list[Block]:
        found = [each for each in self.blocks.values() if (each.load, each.arm) == (load, arm)]
        return sorted(found, key=lambda each: each.block)

    # ------------------------------------------------------------ the file

    def _lock(self) -> None:
        """Until the file is closed, also by a kill: two runs at once would measure each other."""
        try:
            fcntl.flock(self._file.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OptionError(
                f"another run is at work in {self.path.parent}; wait for its end, or give "
                "another --out"
            ) from None

    def _read(self, header: dict[str, Any]) -> None:
        lines = self._file.lines()
        if not lines:
            self._file.append({**header, "started_at": self.started_at}, is_synced=True)
            return
        first, *rest = lines
        self.started_at = _check_header(self.path, first, header).get("started_at", "")
        self.is_resumed = bool(rest)
        for number, line in enumerate(rest, 2):
            try:
                self._keep(_from_json(json.loads(line)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise CorruptFileError(
                    f"{self.path}: line {number} cannot be read ({error!r}); remove the file to "
                    "measure anew"
                ) from error

    def _keep(self, entry: Block | Failure) -> None:
        if isinstance(entry, Block):
            self.blocks[entry.load, entry.arm, entry.block] = entry
        else:
            self.failures[entry.load, entry.arm] = entry


def _check_header(path: Path, line: bytes, wanted: dict[str, Any]) -> dict[str, Any]:
    try:
        seen: dict[str, Any] = json.loads(line)
        same = {key: seen.get(key) for key in wanted}
    except (ValueError, AttributeError):
        raise CorruptFileError(f"{path} is no journal; give another --out") from None
    for key, value in wanted.items():
        if same[key] != value:
            raise OptionError(
                f"{path.parent} holds a run with another {key} ({_short(same[key])}, now "
                f"{_short(value)}); give another --out, or remove the folder to measure anew"
            )
    return seen


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _to_json(entry: Block | Failure) -> dict[str, Any]:
    if isinstance(entry, Failure):
        return asdict(entry)
    return {
        "load": entry.load,
        "arm": entry.arm,
        "block": entry.block,
        "duration_s": entry.duration_s,
        "start_s": entry.start_s,
        "problems": list(entry.problems),
        "counted": None if entry.counted is None else asdict(entry.counted),
        "step_seconds": dict(entry.step_seconds),
        "records": [record_to_json(each) for each in entry.records],
    }


def _from_json(data: Mapping[str, Any]) -> Block | Failure:
    if "failure" in data:
        return Failure(**data["failure"])
    values = dict(data["block"])
    counted = values["counted"]
    return Block(
        load=values["load"],
        arm=values["arm"],
        block=values["block"],
        duration_s=values["duration_s"],
        records=tuple(record_from_json(each) for each in values["records"]),
        problems=tuple(values["problems"]),
        counted=None if counted is None else counts_from_json(counted),
        step_seconds={int(size): each for size, each in values["step_seconds"].items()},
        start_s=values.get("start_s", 0.0),
    )

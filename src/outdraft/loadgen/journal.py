"""Records on disk as they come: one JSON line each, so that a killed run loses none of them."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

from outdraft.errors import CorruptFileError, OutdraftError
from outdraft.line_file import LineFile, whole_lines
from outdraft.records import SCHEMA, Record, record_from_json

_FIELDS = tuple(each.name for each in fields(Record) if each.name != "acceptance")


class Journal:
    """Append-only. The first line says the schema, every other one is a record."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file = LineFile(self.path)
        lines = self._file.lines()
        if lines:
            _check_header(self.path, lines[0])
        else:
            self._file.append({"schema": SCHEMA})

    def add(self, record: Record) -> None:
        self._file.append(record_to_json(record))

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_journal(path: Path | str) -> list[Record]:
    """Every whole line. A torn last one is left out; one that is wrong elsewhere is an error."""
    path = Path(path)
    try:
        lines = whole_lines(path.read_bytes())
    except OSError as error:
        raise OutdraftError(f"cannot read the journal {path}: {error.strerror}") from error
    if not lines:
        return []
    _check_header(path, lines[0])
    records: list[Record] = []
    for number, line in enumerate(lines[1:], start=2):
        try:
            records.append(record_from_json(json.loads(line)))
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptFileError(
                f"{path}: line {number} is no record ({error}); remove it to read the rest"
            ) from error
    return records


def record_to_json(record: Record) -> dict[str, Any]:
    """The inverse of `record_from_json`; dataclasses.asdict copies every chunk time by itself."""
    values = {name: getattr(record, name) for name in _FIELDS}
    values["acceptance"] = None if record.acceptance is None else asdict(record.acceptance)
    return values


def _check_header(path: Path, line: bytes) -> None:
    try:
        schema = json.loads(line)["schema"]
    except (ValueError, TypeError, KeyError):
        schema = None
    if schema != SCHEMA:
        raise CorruptFileError(
            f"{path} is no journal of schema {SCHEMA} (it has {schema!r}); give another path"
        )

"""Records on disk as they come: one JSON line each, so that a killed run loses none of them."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

from outdraft.errors import CorruptFileError, OutdraftError
from outdraft.records import SCHEMA, Record, record_from_json

_FIELDS = tuple(each.name for each in fields(Record) if each.name != "acceptance")


class Journal:
    """Append-only. The first line says the schema, every other one is a record.

    A line is one write to the file, so it is there as a whole or, where the machine itself
    stopped, torn at the very end. Opening a journal again cuts such an end off and goes on.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise self._failed(error) from error
        whole = self.path.read_bytes().rpartition(b"\n")[0]
        if whole:
            _check_header(self.path, whole.partition(b"\n")[0])
            os.ftruncate(self._file, len(whole) + 1)
        else:
            os.ftruncate(self._file, 0)
            self._write({"schema": SCHEMA})

    def add(self, record: Record) -> None:
        self._write(record_to_json(record))

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _write(self, value: dict[str, Any]) -> None:
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OutdraftError:
        return OutdraftError(f"cannot write the journal {self.path}: {error.strerror}")


def read_journal(path: Path | str) -> list[Record]:
    """Every whole line. A torn last one is left out; one that is wrong elsewhere is an error."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OutdraftError(f"cannot read the journal {path}: {error.strerror}") from error
    lines = data.split(b"\n")[:-1]  # behind the last line feed is nothing, or a torn line
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

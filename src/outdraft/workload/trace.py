"""A trace: requests at the times at which they once came.

JSON lines or a CSV file, each entry with a timestamp: seconds (of any zero), or a date and time.
Entries that hold prompts as well, in one of the layouts of `files`, are sent with them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outdraft.errors import OptionError
from outdraft.workload.arrivals import replay
from outdraft.workload.files import has_prompts, read_prompts
from outdraft.workload.prompt import Prompt

_KEYS = ("timestamp", "ts", "time", "created", "created_at", "arrival_time", "arrived_at")


@dataclass(frozen=True, slots=True)
class Trace:
    offsets_ns: tuple[int, ...]  # from the first request on
    prompts: list[Prompt] | None  # in the same order; None: the file has times only


def read_trace(path: Path, *, speed: float = 1.0, at_most: int | None = None) -> Trace:
    """The first `at_most` requests by their times."""
    times = [_seconds(path, place, entry) for place, entry in _entries(path)]
    if not times:
        raise OptionError(f"{path} has no entries; give a trace with at least one request")
    order = sorted(range(len(times)), key=times.__getitem__)[:at_most]
    prompts = None
    if path.suffix != ".csv" and has_prompts(path):
        every = read_prompts(path)
        prompts = [every[place] for place in order]
    return Trace(tuple(replay([times[place] for place in order], speed)), prompts)


def _entries(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line, entry) in the order of the file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{path} is not UTF-8 (byte {error.start})") from None
    if path.suffix == ".csv":
        yield from enumerate(csv.DictReader(text.splitlines()), 2)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise OptionError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(entry, dict):
                raise OptionError(f"{path}, line {number}: not an object")
            yield number, entry


def _seconds(path: Path, line: int, entry: Mapping[str, Any]) -> float:
    named = {str(key).strip().lower(): value for key, value in entry.items()}
    value = next((named[key] for key in _KEYS if named.get(key) not in (None, "")), None)
    if value is None:
        raise OptionError(f"{path}, line {line}: no timestamp; one of {', '.join(_KEYS)} is needed")
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        try:
            when = datetime.fromisoformat(str(value))
        except ValueError:
            seconds = float("nan")
        else:
            seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not abs(seconds) < float("inf"):
        raise OptionError(f"{path}, line {line}: {value!r} is no time; write seconds or ISO 8601")
    return seconds

"""Everything that happens, as JSON lines in a file that only grows, up to a size.

Each line has a number. It is written before any state that knows of it, so that a watch that was
killed finds at its next start what it said last, and says it neither again nor never.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from outdraft.errors import CorruptFileError
from outdraft.line_file import LineFile, whole_lines
from outdraft.watch.findings import Notice

MAX_BYTES = 16 << 20  # then the file is put aside, and the one that was aside is gone
_KEPT = 200  # of the last events in memory


class Told(NamedTuple):
    number: int
    notice: Notice

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, **self.notice.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Told:
        rest = {key: value for key, value in data.items() if key != "number"}
        return cls(int(data["number"]), Notice.from_json(rest))


class Events:
    """`path` None: nothing is written, and the events are kept in memory for a while."""

    def __init__(self, path: Path | None, *, number: int = 0, max_bytes: int = MAX_BYTES) -> None:
        """`number`: of the last event that is known of from elsewhere."""
        self._path, self._max_bytes = path, max_bytes
        self._file: LineFile | None = None
        self._size = 0
        self._recent: deque[Told] = deque(maxlen=_KEPT)
        self.number = number
        if path is not None:
            self._file = LineFile(path)
            lines = self._file.lines()  # cuts off a torn end
            self._size = sum(len(line) + 1 for line in lines)
            before = whole_lines(_aside(path).read_bytes()) if _aside(path).exists() else []
            self._recent.extend(_events(path, [*before, *lines][-_KEPT:]))
            if self._recent:
                self.number = max(number, self._recent[-1].number)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def recent(self) -> tuple[Told, ...]:
        """The last ones, oldest first."""
        return tuple(self._recent)

    def after(self, number: int) -> tuple[Told, ...]:
        return tuple(event for event in self._recent if event.number > number)

    def append(self, notice: Notice) -> Told:
        event = Told(self.number + 1, notice)
        if self._file is not None and self._path is not None:
            size = len(json.dumps(event.to_json(), separators=(",", ":")).encode()) + 1
            if self._size and self._size + size > self._max_bytes:
                self._file.close()
                self._path.replace(_aside(self._path))
                self._file, self._size = LineFile(self._path), 0
            self._file.append(event.to_json(), is_synced=True)
            self._size += size
        self.number = event.number
        self._recent.append(event)
        return event


def _aside(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _events(path: Path, lines: list[bytes]) -> list[Told]:
    try:
        return [Told.from_json(json.loads(line)) for line in lines]
    except (ValueError, TypeError, LookupError) as error:
        raise CorruptFileError(
            f"{path} holds lines that are no events ({error!r}); name another file"
        ) from error

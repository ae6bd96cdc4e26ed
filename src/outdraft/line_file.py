"""A file of JSON lines that only grows, and that a kill leaves readable."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.errors import OutdraftError


class LineFile:
    """A line is there as a whole or, where the machine itself stopped, torn at the very end.
    Opening the file again cuts such an end off and goes on behind it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise self._failed(error) from error

    def lines(self) -> list[bytes]:
        """Every whole line; a torn end is cut off."""
        whole = whole_lines(self.path.read_bytes())
        os.ftruncate(self.handle, sum(len(line) + 1 for line in whole))
        return whole

    def append(self, value: Mapping[str, Any], *, is_synced: bool = False) -> None:
        """`is_synced`: on the disk when this returns, not only with the system."""
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self.handle, line) :]
            if is_synced:
                os.fsync(self.handle)
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        os.close(self.handle)

    def _failed(self, error: OSError) -> OutdraftError:
        return OutdraftError(f"cannot write the journal {self.path}: {error.strerror}")


def whole_lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1]  # behind the last line feed is nothing, or a torn line

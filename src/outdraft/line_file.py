"""An append-only file of JSON lines that stays readable when its writer is killed."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from outdraft.errors import CorruptFileError, OutdraftError

T = TypeVar("T")


class LineFile:
    """A killed process leaves whole lines. A machine that stops may leave a torn last line, which
    `lines` cuts off before anything is appended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self.handle)

    def lines(self) -> list[bytes]:
        """All whole lines. A torn end is removed from the file."""
        whole = whole_lines(self.path.read_bytes())
        os.ftruncate(self.handle, sum(len(line) + 1 for line in whole))
        return whole

    def append(self, value: Mapping[str, Any], *, is_synced: bool = False) -> None:
        """`is_synced`: wait until the line is on the disk, so that it survives a power failure."""
        line = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self.handle, line) :]
            if is_synced:
                os.fsync(self.handle)
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OutdraftError:
        return OutdraftError(f"cannot write the journal {self.path}: {error.strerror}")


def whole_lines(data: bytes) -> list[bytes]:
    return data.split(b"\n")[:-1]  # after the last line feed comes nothing, or a torn line


def parse_entries(
    path: Path, lines: Sequence[bytes], parse: Callable[[Any], T], remedy: str
) -> Iterator[T]:
    """Parse every line but the first, which is the header. An error names the line."""
    for number, line in enumerate(lines[1:], 2):
        try:
            yield parse(json.loads(line))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise CorruptFileError(
                f"{path}: line {number} cannot be read ({error!r}); {remedy}"
            ) from error

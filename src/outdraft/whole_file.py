"""Files that are written completely or not at all, even if the machine stops."""

import errno
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import IO, Any

from outdraft.errors import CorruptFileError, OutdraftError


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a temporary file in the same folder, flushes it to the disk, then renames it."""
    # Not of `tempfile`: those are readable by their owner only.
    temporary_path = path.parent / f".{path.name}.{token_hex(4)}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary_path.open("xb") as temporary:
            write(temporary)
            temporary.flush()
            os.fsync(temporary.fileno())
        temporary_path.replace(path)
    except OSError as error:
        hint = "; make room and start again" if error.errno == errno.ENOSPC else ""
        raise OutdraftError(f"cannot write {path}: {error.strerror}{hint}") from error
    finally:
        with suppress(OSError):  # renamed, or never there
            temporary_path.unlink()


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any, *, indent: int | None = None) -> None:
    """A value that JSON cannot hold raises before anything is written."""
    end = "" if indent is None else "\n"
    write_text(path, json.dumps(value, indent=indent, ensure_ascii=indent is None) + end)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file, or a CorruptFileError that names the file."""
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        advice = "fetch it again, or remove it if outdraft wrote it"
        raise CorruptFileError(f"{path} is not JSON ({error}); {advice}") from error
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path} holds a JSON {type(value).__name__}, not an object")
    return value

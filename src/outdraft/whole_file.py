"""Files that are written completely or not at all, even if the machine stops."""

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from outdraft.errors import CorruptFileError, OutdraftError


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a temporary file in the same folder, flushes it to the disk, then renames it."""
    temporary_path: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as temporary:
            temporary_path = Path(temporary.name)
            write(temporary)
            temporary.flush()
            os.fsync(temporary.fileno())
        temporary_path.chmod(0o666 & ~_umask())  # a temporary file is readable by its owner only
        temporary_path.replace(path)
        temporary_path = None
    except OSError as error:
        hint = "; make room and start again" if error.errno == errno.ENOSPC else ""
        raise OutdraftError(f"cannot write {path}: {error.strerror}{hint}") from error
    finally:
        if temporary_path is not None:
            temporary_path.unlink(missing_ok=True)


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

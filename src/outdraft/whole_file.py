"""Files that are there whole or not at all, whenever the power goes."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from outdraft.errors import OutdraftError


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Written beside its place, flushed to the disk, then renamed into it."""
    beside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as temporary:
            beside = Path(temporary.name)
            write(temporary)
            temporary.flush()
            os.fsync(temporary.fileno())
        beside.chmod(0o666 & ~_umask())  # a temporary file is for its owner alone
        beside.replace(path)
        beside = None
    except OSError as error:
        hint = "; make room and start again" if error.errno == errno.ENOSPC else ""
        raise OutdraftError(f"cannot write {path}: {error.strerror}{hint}") from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """What JSON cannot hold is found before anything is written."""
    write_text(path, json.dumps(value))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

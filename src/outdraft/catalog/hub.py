"""Files of the hub, through huggingface_hub and what the user has configured for it.

Every request begins with one that has a short timeout. Without a network it fails in seconds, and
then only the hub's own cache is used. A file that cannot be fetched is a CatalogError with a short
reason.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outdraft.errors import CatalogError

PROBE_TIMEOUT_S = 4.0
TRAINING_PROMPTS = "training_prompts.txt"  # beside a draft's weights: one digest a line
HEADER_BYTES = 48 << 20  # more than any GGUF header: the token lists are the most of it

_SMALL_FILES = [
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template*",
    TRAINING_PROMPTS,
]
# Safetensors and what old tokenizers need: never pickled weights, never other formats.
_OLD_TOKENIZER = ["tokenizer*", "added_tokens.json", "vocab.json", "merges.txt"]
_ALL_FILES = [*_SMALL_FILES, *_OLD_TOKENIZER, "model*.safetensors"]


def file_metadata(repo: str, filename: str) -> Any:
    """Size and etag of one file, which for a large file is its sha256."""
    library = _library()
    try:
        url = library.hf_hub_url(repo, filename)
        return library.get_hf_file_metadata(url, timeout=PROBE_TIMEOUT_S)
    except Exception as error:  # the library's transport errors differ by version
        raise CatalogError(_first_line(error)) from error


def current_revision(repo: str, filename: str) -> str | None:
    """The commit that the hub, or without an answer its cache, has for a file's repository."""
    try:
        revision = file_metadata(repo, filename).commit_hash
    except CatalogError:
        path = _library().try_to_load_from_cache(repo, filename)
        match = re.search(r"/snapshots/(\w+)/", path if isinstance(path, str) else "")
        revision = match and match[1]
    return None if revision is None else str(revision)


def file_url(repo: str, filename: str) -> str:
    return str(_library().hf_hub_url(repo, filename))


def fetch_file(repo: str, filename: str) -> Path:
    """One file of a repository, in the hub's cache."""
    return _fetch(_library().hf_hub_download, repo, filename, filename=filename)


def fetch_folder(repo: str, *, with_weights: bool) -> Path:
    """A repository's config, tokenizer and, if wanted, safetensors, in the hub's cache."""
    library = _library()
    if not sys.stderr.isatty():
        library.utils.disable_progress_bars()
    patterns = _ALL_FILES if with_weights else _SMALL_FILES
    options = {"allow_patterns": patterns, "etag_timeout": PROBE_TIMEOUT_S}
    return _fetch(library.snapshot_download, repo, "config.json", **options)


@contextmanager
def partial_gguf(repo: str, filename: str) -> Iterator[Path]:
    """A temporary file as long as the one on the hub that holds its header, then zeros."""
    size = int(file_metadata(repo, filename).size or 0)
    with tempfile.TemporaryDirectory(prefix="outdraft-") as scratch:
        path = Path(scratch) / Path(filename).name
        try:
            with _library().HfFileSystem().open(f"{repo}/{filename}", "rb") as remote:
                path.write_bytes(remote.read(min(size, HEADER_BYTES)))
        except Exception as error:
            raise CatalogError(_first_line(error)) from error
        with path.open("r+b") as file:
            file.truncate(size)  # a hole: takes no room on the disk
        yield path


def _fetch(fetch: Callable[..., str], repo: str, probed_file: str, **options: Any) -> Path:
    """Calls a function of the library; without an answer from the hub, for its cache alone.

    The function itself would find out by 30 s of retries that the hub cannot be reached.
    """
    problem = None
    try:
        file_metadata(repo, probed_file)
    except CatalogError as error:
        problem = error
    try:
        return Path(fetch(repo, local_files_only=problem is not None, **options))
    except Exception as error:
        raise problem or CatalogError(_first_line(error)) from error


def _library() -> Any:
    import huggingface_hub.utils  # slow to load, and most commands never go near the hub

    return huggingface_hub


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:160]

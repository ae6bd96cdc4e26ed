"""The small files of a hub repository: its shape and tokenizer, never its weights.

Asked through huggingface_hub (its endpoint, token, proxies, offline switch and cache). One quick
question first: without a network it fails in seconds, and then only the hub's own cache is left.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from outdraft.errors import CatalogError

PROBE_TIMEOUT_S = 4.0
HEADER_BYTES = 48 << 20  # more than any GGUF header: the token lists are the most of it

_FILE = re.compile(r"([\w][\w.-]*/[\w][\w.-]*)[:/](.+\.gguf)")
_ID = re.compile(r"[\w][\w.-]*/[\w][\w.-]*")
_SMALL = [
    "config.json",
    "generation_config.json",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template*",
]


def is_file_name(name: str) -> bool:
    return _FILE.fullmatch(name) is not None


def fetch_small_files(repo: str) -> tuple[Path, int | None]:
    """A folder without weights, and what the weights take where the hub says."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    if not _ID.fullmatch(repo):
        raise CatalogError(f"{repo!r} is no hub id (org/name), and no folder of that name is here")
    problem: Exception | None = None
    try:
        get_hf_file_metadata(hf_hub_url(repo, "config.json"), timeout=PROBE_TIMEOUT_S)
    except Exception as error:  # the library's transport errors differ by version
        problem = error
    try:
        folder = Path(
            snapshot_download(
                repo,
                allow_patterns=_SMALL,
                etag_timeout=PROBE_TIMEOUT_S,
                local_files_only=problem is not None,
            )
        )
    except Exception as error:
        raise _failure(repo, problem or error) from error
    return folder, None if problem is not None else _weight_bytes(repo, folder)


def _weight_bytes(repo: str, folder: Path) -> int | None:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    from outdraft.modelspec.tensors import INDEX, SINGLE, read_json

    if (folder / INDEX).is_file():
        size = (read_json(folder / INDEX).get("metadata") or {}).get("total_size")
        return int(size) if size else None
    try:
        found = get_hf_file_metadata(hf_hub_url(repo, SINGLE), timeout=PROBE_TIMEOUT_S)
    except Exception:  # other formats, or a hub that stopped answering: the formula does it
        return None
    return None if found.size is None else int(found.size)


@contextmanager
def partial_gguf(name: str) -> Iterator[Path]:
    """A file as long as the one on the hub that holds its header, and nothing behind it."""
    from huggingface_hub import HfFileSystem, get_hf_file_metadata, hf_hub_url

    match = _FILE.fullmatch(name)
    assert match is not None
    with tempfile.TemporaryDirectory(prefix="outdraft-") as scratch:
        path = Path(scratch) / Path(match[2]).name
        try:
            url = hf_hub_url(match[1], match[2])
            size = get_hf_file_metadata(url, timeout=PROBE_TIMEOUT_S).size or 0
            with HfFileSystem().open(f"{match[1]}/{match[2]}", "rb") as remote:
                path.write_bytes(remote.read(min(size, HEADER_BYTES)))
        except Exception as error:  # the library's transport errors differ by version
            raise _failure(name, error) from error
        with path.open("r+b") as file:
            file.truncate(size)  # a hole: takes no room on the disk
        yield path


def _failure(name: str, error: Exception) -> CatalogError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
    return CatalogError(
        f"cannot read {name} from the hub ({reason}); give a folder, a .gguf file or a name of "
        "the table, such as llama-3.1-8b"
    )

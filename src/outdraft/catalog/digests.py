"""What a model's files hold, in a few characters: two models of one name are told apart by it.

Files are hashed whole: a fine-tuned model has the size, the headers and often the first and last
tensors of the one it came from. Reading them costs less than one start of an engine. A large file
is hashed once: the digest is kept in the cache folder under the file's path, size, inode and times.
The time of its last change of any kind (ctime) is among them, which no program can set back.
"""

import hashlib
import os
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePath

from outdraft.catalog import hub
from outdraft.catalog.download import sha256_of
from outdraft.catalog.lookup import default_cache_dir, hub_address, local_files
from outdraft.errors import CorruptFileError, OptionError, OutdraftError
from outdraft.whole_file import read_json, write_text

_KEPT_BYTES = 16 << 20  # the digest of a smaller file is not worth keeping
_SETTLED_S = 2.0  # a file may change twice within one tick of its times
_TEXTS = (".md", ".txt", ".html")  # beside a model that is none of it: cards, licences
_TOKENIZER_TEXTS = ("merges.txt", "vocab.txt")
# What was measured of a model, which may be measured again
_REPORTS = (
    "distill.json",
    "all_results.json",
    "eval_results.json",
    "train_results.json",
    "trainer_state.json",
)
_SHARD = re.compile(r"(.+)-\d{5}-of-(\d{5})\.gguf")


def model_digest(name: str) -> str:
    """Of the files of a model that is here. Of one that an engine fetches by itself: its revision
    on the hub, or in the hub's cache; "unknown" where neither says."""
    files = local_files(name)
    if files is not None:
        return _digest(_files_of(files.path))
    try:
        repo, filename = hub_address(name)
    except OptionError:  # a name of the engine's own
        return "unknown"
    revision = hub.current_revision(repo, filename or "config.json")
    return "unknown" if revision is None else f"revision {revision[:16]}"


def _files_of(path: Path) -> list[Path]:
    """Of a folder those at its top, without texts for people and reports, and the weights that an
    index there names; of a GGUF file all its shards."""
    if not path.is_dir():
        shard = _SHARD.fullmatch(path.name)
        return (
            [path] if shard is None else sorted(path.parent.glob(f"{shard[1]}-*-{shard[2]}.gguf"))
        )
    top = {
        each
        for each in path.iterdir()
        if each.is_file()
        and not each.name.startswith(".")
        and each.name not in _REPORTS
        and (each.suffix not in _TEXTS or each.name in _TOKENIZER_TEXTS)
    }
    return sorted(top.union(*map(_weights_named_by, path.glob("*.index.json"))))


def _weights_named_by(index: Path) -> set[Path]:
    """They may lie in folders of their own. What is damaged, the engine will say."""
    with suppress(CorruptFileError, AttributeError, ValueError):
        names = {PurePath(str(name)) for name in read_json(index).get("weight_map", {}).values()}
        inside = (name for name in names if not name.is_absolute() and ".." not in name.parts)
        return {path for name in inside if (path := index.parent / name).is_file()}
    return set()


def _digest(paths: Sequence[Path]) -> str:
    with ThreadPoolExecutor(os.cpu_count()) as threads:  # hashing lets go of the interpreter lock
        digests = list(threads.map(_file_digest, paths))
    lines = (f"{path.name} {digest}\n" for path, digest in zip(paths, digests, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:16]


def _file_digest(path: Path) -> str:
    status = path.stat()
    if status.st_size < _KEPT_BYTES:
        return sha256_of(path)
    marks = (status.st_size, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)
    fingerprint = " ".join(map(str, marks))
    place = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:32]
    kept = default_cache_dir() / "digests" / place
    with suppress(OSError, ValueError):
        seen, digest = kept.read_text(encoding="utf-8").split("\n")[:2]
        if seen == fingerprint:
            return digest
    digest = sha256_of(path)
    if time.time() - status.st_ctime > _SETTLED_S:
        with suppress(OutdraftError):  # a cache that cannot be written costs time only
            write_text(kept, f"{fingerprint}\n{digest}\n")
    return digest

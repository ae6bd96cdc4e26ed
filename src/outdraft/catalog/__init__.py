"""A model's name, hub id, folder or .gguf file, made into local files.

    files = resolve("smollm2-135m")      # fetched once, then taken from the cache
    files.path, files.kind, files.licence

The cache folder is ``$OUTDRAFT_CACHE``, else ``$XDG_CACHE_HOME/outdraft``,
else ``~/.cache/outdraft``. Whole models of the hub stay in the hub's own cache.
"""

from outdraft.catalog.digests import model_digest
from outdraft.catalog.download import DownloadProgress, no_progress
from outdraft.catalog.entries import (
    SHIPPED_DRAFTS,
    ModelFiles,
    best_shipped_draft,
    drafts_for,
    find_entry,
    shipped_draft,
)
from outdraft.catalog.hub import TRAINING_PROMPTS
from outdraft.catalog.lookup import (
    default_cache_dir,
    engine_model_name,
    file_beside,
    header_files,
    local_files,
    local_path,
    resolve,
)

__all__ = [
    "SHIPPED_DRAFTS",
    "TRAINING_PROMPTS",
    "DownloadProgress",
    "ModelFiles",
    "best_shipped_draft",
    "default_cache_dir",
    "drafts_for",
    "engine_model_name",
    "file_beside",
    "find_entry",
    "header_files",
    "local_files",
    "local_path",
    "model_digest",
    "no_progress",
    "resolve",
    "shipped_draft",
]

"""A model's name, hub id, folder or .gguf file, made into local files.

    files = resolve("smollm2-135m")      # fetched once, then taken from the cache
    files.path, files.kind, files.licence

The cache folder is ``$OUTDRAFT_CACHE``, else ``$XDG_CACHE_HOME/outdraft``,
else ``~/.cache/outdraft``. Whole models of the hub stay in the hub's own cache.
"""

from outdraft.catalog.download import Progress, silent
from outdraft.catalog.entries import CATALOG, Entry
from outdraft.catalog.lookup import ModelFiles, default_cache_dir, resolve

__all__ = [
    "CATALOG",
    "Entry",
    "ModelFiles",
    "Progress",
    "default_cache_dir",
    "resolve",
    "silent",
]

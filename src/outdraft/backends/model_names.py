"""A model as an engine finds it that knows nothing of our catalog: a hub id, a folder or a file."""

from __future__ import annotations

from pathlib import Path

from outdraft.catalog.entries import SHIPPED_DRAFTS
from outdraft.catalog.lookup import find_entry


def model_name(name: str, notes: list[str]) -> str:
    """`notes` hears where a name of the catalog has become another one."""
    entry = find_entry(name)
    if entry is not None:
        notes.append(f"{name} is {entry.hub_id} on the hub")
        return entry.hub_id
    shipped = SHIPPED_DRAFTS.get(name.lower())
    if shipped is not None:
        return str(shipped.path)
    path = Path(name).expanduser()
    return str(path) if path.is_dir() else name

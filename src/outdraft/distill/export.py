"""A GGUF model, or a head in blocks, as a folder that vLLM, SGLang and transformers load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.catalog import resolve
from outdraft.distill.files import read_object, write_json, write_tensors
from outdraft.distill.saving import save_model, stored_head
from outdraft.engine.models.weights import SafetensorsWeights, open_weights
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import OptionError
from outdraft.modelspec import read_modelspec
from outdraft.modelspec.head import is_head, read_head
from outdraft.modelspec.tensors import SINGLE

_ROPE_FACTORS = "rope_freqs.weight"  # no parameter of a Hugging Face model


Tell = Callable[[int, int], None]  # how many tensors of how many are read


@dataclass(frozen=True, slots=True)
class Exported:
    source: Path
    folder: Path
    num_parameters: int
    num_bytes: int  # of the weights


def export_draft(
    name: str,
    folder: Path,
    storage: str = "bfloat16",
    tell: Tell = lambda done, total: None,
) -> Exported:
    """Weights last: a folder that has them is whole. `storage`: of a head's matrices."""
    files = resolve(name)
    if files.kind == "folder" and is_head(files.path):
        return _export_head(files.path, folder, storage, tell)
    if files.kind == "folder":
        raise OptionError(
            f"{name} is a folder already, {files.path}: engines that read folders load it as it "
            "is; export is for .gguf files and heads"
        )
    if storage != "bfloat16":
        raise OptionError(f"storage {storage} is for heads; a model's folder is in bfloat16")
    return _export_model(files.path, folder, tell)


def _export_head(source: Path, folder: Path, storage: str, tell: Tell) -> Exported:
    read_head(source)  # whole, and what its config.json says
    weights = SafetensorsWeights(source)
    tensors = {}
    for done, each in enumerate(sorted(weights.names()), 1):
        tensors[each] = weights.get(each)
        tell(done, len(weights.names()))
    (folder / SINGLE).unlink(missing_ok=True)  # of an earlier export
    stored = stored_head(tensors, storage)
    write_json(folder / "config.json", read_object(source / "config.json"))
    write_tensors(folder / SINGLE, stored, {"format": "pt"})
    return Exported(
        source=source,
        folder=folder,
        num_parameters=sum(t.numel() for t in tensors.values() if t.is_floating_point()),
        num_bytes=sum(each.nbytes for each in stored.values()),
    )


def _export_model(source: Path, folder: Path, tell: Tell) -> Exported:
    """In bfloat16, with the file's own tokenizer and chat template."""
    spec = read_modelspec(source)
    tokenizer = load_tokenizer(source)
    weights = open_weights(source, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    names = sorted(weights.names() - {_ROPE_FACTORS})
    tensors = {}
    for done, each in enumerate(names, 1):
        tensors[each] = weights.get(each).to(torch.bfloat16)
        tell(done, len(names))
    (folder / SINGLE).unlink(missing_ok=True)  # of an earlier export
    save_model(
        folder,
        spec,
        tensors,
        tokenizer=tokenizer,
        tokenizer_files=source,
        eos_ids=tuple(dict.fromkeys((*tokenizer.eos_ids, *spec.eos_ids))),
    )
    return Exported(
        source=source,
        folder=folder,
        num_parameters=sum(each.numel() for each in tensors.values()),
        num_bytes=sum(each.nbytes for each in tensors.values()),
    )

"""A GGUF model, or a head in blocks, as a folder that vLLM, SGLang and transformers load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.catalog import resolve
from outdraft.distill.build import plain_head
from outdraft.distill.files import read_object, write_json, write_tensors
from outdraft.distill.saving import save_model, stored_head
from outdraft.engine.models.weights import SafetensorsWeights, open_weights
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import OptionError
from outdraft.modelspec import read_modelspec
from outdraft.modelspec.head import HeadSpec, check_head, is_head, is_packed, read_head
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
    spec, config = read_head(source), read_object(source / "config.json")
    embedding = torch.empty(0, 0)
    if storage == "blocks" or is_packed(source):  # an lm_head in blocks is read beside it
        embedding = _target_embedding(config, spec)
    tell(1, 2)
    tensors = plain_head(SafetensorsWeights(source), embedding)
    (folder / SINGLE).unlink(missing_ok=True)  # of an earlier export
    stored = stored_head(tensors, storage, embedding)
    tell(2, 2)
    write_json(folder / "config.json", config)
    write_tensors(folder / SINGLE, stored, {"format": "pt"})
    return Exported(
        source=source,
        folder=folder,
        num_parameters=sum(t.numel() for t in tensors.values() if t.is_floating_point()),
        num_bytes=sum(each.nbytes for each in stored.values()),
    )


def _target_embedding(config: Mapping[str, Any], head: HeadSpec) -> Tensor:
    """(V, H) of the target that the head's config.json names."""
    name = config.get("speculators_config", {}).get("verifier", {}).get("name_or_path")
    if not name:
        raise OptionError("the head's config.json names no target, whose embeddings blocks need")
    path = resolve(name).path
    target = read_modelspec(path)
    check_head(head, target, name="to export", target_name=name)
    weights = open_weights(path, num_heads=target.num_heads, num_kv_heads=target.num_kv_heads)
    return weights.get("model.embed_tokens.weight")


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

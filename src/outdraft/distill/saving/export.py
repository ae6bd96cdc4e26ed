"""Rewrites a GGUF model, or a head in blocks, as a folder for vLLM, SGLang and transformers."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outdraft.catalog import resolve
from outdraft.distill.saving.folder import save_model, store_head, write_tensors
from outdraft.distill.training.drafts import read_head_tensors
from outdraft.engine.models.weights import SafetensorsWeights, open_weights
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import OptionError
from outdraft.modelspec import HeadSpec, read_head, read_modelspec
from outdraft.modelspec.head import check_head_fits, is_head, is_packed
from outdraft.modelspec.tensors import SINGLE
from outdraft.whole_file import read_json, write_json
from outdraft.workload.training import training_digests, write_training_digests

_ROPE_FACTORS = "rope_freqs.weight"  # not a tensor of Hugging Face's files
OnTensor = Callable[[int, int], None]  # tensors read so far, and in all


@dataclass(frozen=True, slots=True)
class ExportedDraft:
    source: Path
    folder: Path
    num_parameters: int
    num_bytes: int  # of the weights


def export_draft(
    name: str,
    folder: Path,
    storage: str = "bfloat16",
    on_tensor: OnTensor = lambda done, total: None,
) -> ExportedDraft:
    """Writes the weights last: a folder that has them is complete. `storage`: of a head."""
    files = resolve(name)
    is_folder = files.kind == "folder"
    if is_folder and not is_head(files.path):
        raise OptionError(
            f"{name} is a folder already, {files.path}: engines that read folders load it as it "
            "is; export is for .gguf files and heads"
        )
    if storage != "bfloat16" and not is_folder:
        raise OptionError(f"storage {storage} is for heads; a model's folder is in bfloat16")
    if is_folder:
        num_parameters, stored = _export_head(files.path, folder, storage, on_tensor)
    else:
        num_parameters, stored = _export_model(files.path, folder, on_tensor)
    if (digests := training_digests(name)) is not None:
        write_training_digests(folder, digests)
    return ExportedDraft(files.path, folder, num_parameters, sum(t.nbytes for t in stored))


def _export_head(
    source: Path, folder: Path, storage: str, on_tensor: OnTensor
) -> tuple[int, Iterable[Tensor]]:
    """Returns the number of parameters, and the tensors as they are stored."""
    config = read_json(source / "config.json")
    embedding = torch.empty(0, 0)
    if storage == "blocks" or is_packed(source):  # an lm_head in blocks is a difference from it
        embedding = _target_embedding(config, read_head(source))
    on_tensor(1, 2)
    tensors = read_head_tensors(SafetensorsWeights(source), embedding)
    (folder / SINGLE).unlink(missing_ok=True)  # of an earlier export
    stored = store_head(tensors, storage, embedding)
    on_tensor(2, 2)
    write_json(folder / "config.json", config, indent=2)
    write_tensors(folder / SINGLE, stored)
    return sum(t.numel() for t in tensors.values() if t.is_floating_point()), stored.values()


def _target_embedding(config: Mapping[str, Any], head: HeadSpec) -> Tensor:
    """(V, H) of the target that the head's config.json names."""
    name = config.get("speculators_config", {}).get("verifier", {}).get("name_or_path")
    if not name:
        raise OptionError(
            "the head's config.json names no target, whose embedding is needed for blocks"
        )
    path = resolve(name).path
    target = read_modelspec(path)
    check_head_fits(head, target, name="to export", target_name=name)
    weights = open_weights(path, num_heads=target.num_heads, num_kv_heads=target.num_kv_heads)
    return weights.get("model.embed_tokens.weight")


def _export_model(source: Path, folder: Path, on_tensor: OnTensor) -> tuple[int, Iterable[Tensor]]:
    """In bfloat16, with the file's own tokenizer and chat template; returns the same."""
    spec, tokenizer = read_modelspec(source), load_tokenizer(source)
    weights = open_weights(source, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    names = sorted(weights.names() - {_ROPE_FACTORS})
    tensors = {}
    for done, each in enumerate(names, 1):
        tensors[each] = weights.get(each).to(torch.bfloat16)
        on_tensor(done, len(names))
    (folder / SINGLE).unlink(missing_ok=True)  # of an earlier export
    save_model(folder, spec, tensors, tokenizer, source)
    return sum(each.numel() for each in tensors.values()), tensors.values()

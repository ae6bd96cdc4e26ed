"""A GGUF model as a Hugging Face folder: what vLLM, SGLang and transformers load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from outdraft.catalog import resolve
from outdraft.distill.saving import save_model
from outdraft.engine.models.weights import open_weights
from outdraft.engine.tokenizer import load_tokenizer
from outdraft.errors import OptionError
from outdraft.modelspec import read_modelspec

_ROPE_FACTORS = "rope_freqs.weight"  # no parameter of a Hugging Face model


@dataclass(frozen=True, slots=True)
class Exported:
    source: Path
    folder: Path
    num_parameters: int
    num_bytes: int  # of the weights, in bfloat16


def export_model(
    name: str, folder: Path, tell: Callable[[int, int], None] = lambda done, total: None
) -> Exported:
    """Weights in bfloat16, the file's own tokenizer and chat template. Weights last: a folder
    that has them is whole. `tell` hears how many tensors of how many are read."""
    files = resolve(name)
    if files.kind == "folder":
        raise OptionError(
            f"{name} is a folder already, {files.path}: engines that read folders load it as it "
            "is; export is for .gguf files"
        )
    spec = read_modelspec(files.path)
    tokenizer = load_tokenizer(files.path)
    weights = open_weights(files.path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    names = sorted(weights.names() - {_ROPE_FACTORS})
    tensors = {}
    for done, each in enumerate(names, 1):
        tensors[each] = weights.get(each).to(torch.bfloat16)
        tell(done, len(names))
    (folder / "model.safetensors").unlink(missing_ok=True)  # of an earlier export
    save_model(
        folder,
        spec,
        tensors,
        tokenizer=tokenizer,
        tokenizer_files=files.path,
        eos_ids=tuple(dict.fromkeys((*tokenizer.eos_ids, *spec.eos_ids))),
    )
    return Exported(
        source=files.path,
        folder=folder,
        num_parameters=sum(each.numel() for each in tensors.values()),
        num_bytes=sum(each.nbytes for each in tensors.values()),
    )

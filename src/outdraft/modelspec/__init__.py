"""What a model is, read from its files' headers: no weights are loaded, torch is not needed.

    spec = read_modelspec(Path("SmolLM2-135M-Instruct.Q4_1.gguf"))
    spec.num_layers, spec.num_parameters, spec.kv_bytes_per_token(2)

A folder is read from ``config.json`` and the headers of its safetensors files,
a ``.gguf`` file from its own header.
"""

from __future__ import annotations

from pathlib import Path

from outdraft.errors import ModelError
from outdraft.modelspec.folder import read_folder
from outdraft.modelspec.gguf_spec import read_gguf
from outdraft.modelspec.rope import RopeScaling, inverse_frequencies
from outdraft.modelspec.spec import FAMILIES, ModelSpec
from outdraft.modelspec.tensors import weight_files

__all__ = [
    "FAMILIES",
    "ModelSpec",
    "RopeScaling",
    "inverse_frequencies",
    "read_modelspec",
    "weight_files",
]


def read_modelspec(path: Path) -> ModelSpec:
    """Read the ModelSpec of a folder (config.json + safetensors) or of a .gguf file."""
    path = Path(path)
    if path.is_dir():
        return read_folder(path)
    if path.is_file():
        return read_gguf(path)
    raise ModelError(f"no model at {path}; give a folder with config.json or a .gguf file")

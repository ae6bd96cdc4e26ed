"""A model's tensors, one at a time, under the names Hugging Face's Llama-style files use.

Whatever the source, `model.layers.3.self_attn.q_proj.weight` is the same rows in the same order:
the model code knows one layout. Files are memory-mapped; what `get` returns is a fresh tensor,
and nothing else is held.

GGUF differs in three ways that are undone here: llama.cpp's names, the order of q's and k's rows
(both in `modelspec/gguf_layout.py`), and quantized tensors, which are dequantized to float32.
"""

import math
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from safetensors import SafetensorError, safe_open

from outdraft.errors import CorruptFileError, ModelError
from outdraft.modelspec.gguf_header import read_gguf_header
from outdraft.modelspec.gguf_layout import PERMUTED, hf_name
from outdraft.modelspec.packed import packed_type, plain_name, unpack
from outdraft.modelspec.tensors import (
    INDEX,
    SINGLE,
    TensorEntry,
    read_safetensors_header,
    weight_files,
)
from outdraft.whole_file import read_json

_PLAIN = {"F32": np.float32, "F16": np.float16, "BF16": np.int16}  # numpy has no bfloat16


class Weights(Protocol):
    """A model's tensors by name, each read on demand."""

    def names(self) -> frozenset[str]: ...

    def get(self, name: str) -> torch.Tensor: ...


def open_weights(path: Path, *, num_heads: int, num_kv_heads: int) -> Weights:
    """The weights of a safetensors folder or a `.gguf` file. The head counts are for GGUF."""
    if path.is_dir():
        return SafetensorsWeights(path)
    if not path.exists():
        raise ModelError(f"no such model file or folder: {path}")
    if path.suffix == ".gguf":
        return GgufWeights(path, num_heads=num_heads, num_kv_heads=num_kv_heads)
    raise ModelError(f"{path} is neither a folder of safetensors nor a .gguf file")


def read_shaped(weights: Weights, name: str, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor that must have the shape that the model's spec gives it."""
    values = weights.get(name)
    if values.shape != shape:
        raise CorruptFileError(
            f"tensor {name} has shape {tuple(values.shape)} where the model's own description "
            f"makes it {tuple(shape)}; the files do not belong together"
        )
    return values


class SafetensorsWeights:
    """A folder with model.safetensors, or shards and their index; dtypes as in the files, packed
    matrices as float32."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        held = _tensor_files(folder).items()
        self._file_of = {plain_name(stored): (file, stored) for stored, file in held}

    def names(self) -> frozenset[str]:
        return frozenset(self._file_of)

    def get(self, name: str) -> torch.Tensor:
        if name not in self._file_of:
            raise _missing(self._folder, name)
        file, stored = self._file_of[name]
        kind = packed_type(stored)
        try:
            with safe_open(file, framework="pt") as tensors:
                # A copy: the view would keep the whole file mapped for as long as it lives.
                values: torch.Tensor = tensors.get_tensor(stored).clone()
            return values if kind is None else torch.from_numpy(unpack(values.numpy(), kind))
        except (SafetensorError, ValueError) as error:
            raise CorruptFileError(
                f"{file}: tensor {name!r} cannot be read ({error}); fetch the file again"
            ) from error


def _tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor name → the file that holds it, every file checked for its full length."""
    has_safetensors = (folder / SINGLE).exists() or (folder / INDEX).exists()
    if not has_safetensors and any(folder.glob("*.bin")):
        raise ModelError(
            f"{folder} holds only .bin weights, which run code when opened; "
            "convert them to safetensors (save_pretrained writes them)"
        )
    held = {
        entry.name: file for file in weight_files(folder) for entry in read_safetensors_header(file)
    }
    if not (folder / SINGLE).exists():
        for name, shard in read_json(folder / INDEX)["weight_map"].items():
            if name not in held:
                raise _missing(folder / shard, name)
    return held


class GgufWeights:
    """A GGUF file: F32, F16 and BF16 as they are, every quantized type as float32."""

    def __init__(self, path: Path, *, num_heads: int, num_kv_heads: int) -> None:
        self._path = path
        self._heads = {"q_proj": num_heads, "k_proj": num_kv_heads}
        header = read_gguf_header(path)
        self._permuted = header.architecture in PERMUTED
        named = ((hf_name(name), tensor) for name, tensor in header.tensors.items())
        self._tensors = {name: tensor for name, tensor in named if name is not None}

    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def get(self, name: str) -> torch.Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise _missing(self._path, name)
        values = _read_tensor(self._path, name, tensor)
        heads = self._heads.get(name.split(".")[-2])
        return unpermute(values, heads) if self._permuted and heads else values


def unpermute(values: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of each head from interleaved pairs back to two halves. values: [heads * d, ...]"""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])  # [heads, d/2, 2, ...]
    return pairs.transpose(1, 2).reshape(values.shape)


def _read_tensor(path: Path, name: str, tensor: TensorEntry) -> torch.Tensor:
    """One tensor out of the file, copied; quantized types as float32."""
    kind = tensor.dtype
    if tensor.num_bytes == 0:
        raise _no_dequantizer(path, name, kind)
    raw = np.memmap(path, dtype=np.uint8, mode="r", offset=tensor.offset, shape=(tensor.num_bytes,))
    if kind in _PLAIN:
        plain = torch.from_numpy(np.array(raw.view(_PLAIN[kind])).reshape(tensor.shape))
        return plain.view(torch.bfloat16) if kind == "BF16" else plain
    try:
        # gguf takes few rows at a time; with some side by side it needs half of the time.
        num_rows = math.prod(tensor.shape[:-1])
        rows = np.asarray(raw).reshape(num_rows // math.gcd(num_rows, 16), -1)
        values = dequantize(rows, GGMLQuantizationType[kind]).reshape(tensor.shape)
    except (NotImplementedError, ValueError) as error:
        raise _no_dequantizer(path, name, kind) from error
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _no_dequantizer(path: Path, name: str, kind: str) -> ModelError:
    return ModelError(
        f"{path}: tensor {name!r} has the type {kind}, which the gguf package cannot "
        "dequantize; use another quantization, such as Q4_K_M or Q8_0"
    )


def _missing(file: Path, name: str) -> CorruptFileError:
    return CorruptFileError(f"{file}: tensor {name!r} is missing; fetch the model again")

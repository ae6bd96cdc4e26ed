"""A model's tensors, one at a time, under the names Hugging Face's Llama-style files use.

Whatever the source, `model.layers.3.self_attn.q_proj.weight` is the same rows in the same order:
the model code knows one layout. Files are memory-mapped; what `get` returns is a fresh tensor,
and nothing else is held.

GGUF differs in three ways that are undone here. Names are llama.cpp's. Quantized tensors are
dequantized to float32. And for the architectures in `PERMUTED`, llama.cpp's converter reorders
the rows of q and k within each head from two halves (0 … d/2, d/2 … d) to interleaved pairs,
because its rotary embedding for them turns neighbouring elements.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from safetensors import SafetensorError, safe_open

from outdraft.errors import CorruptFileError, ModelError
from outdraft.modelspec.gguf_header import GgufTensor, read_gguf_header
from outdraft.modelspec.packed import packed_type, plain_name, unpack
from outdraft.modelspec.tensors import (
    INDEX,
    SINGLE,
    read_json,
    read_safetensors_header,
    weight_files,
)

# Whose converter derives from the Llama one. Qwen's do not: their rows stay as they are.
PERMUTED = frozenset({"llama", "smollm3"})

_TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": "rope_freqs.weight",  # llama3 scaling: a divisor per rotary frequency
}
_BLOCK_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}


class Weights(Protocol):
    """A model's tensors by name, each read when asked for."""

    def names(self) -> frozenset[str]: ...

    def get(self, name: str) -> torch.Tensor: ...

    def __contains__(self, name: object) -> bool: ...


def open_weights(path: Path, *, num_heads: int, num_kv_heads: int) -> Weights:
    """The weights of a safetensors folder or a `.gguf` file. The head counts are for GGUF."""
    if path.is_dir():
        return SafetensorsWeights(path)
    if not path.exists():
        raise ModelError(f"no such model file or folder: {path}")
    if path.suffix == ".gguf":
        return GgufWeights(path, num_heads=num_heads, num_kv_heads=num_kv_heads)
    raise ModelError(f"{path} is neither a folder of safetensors nor a .gguf file")


class SafetensorsWeights:
    """A folder with model.safetensors, or shards and their index; dtypes as in the files, packed
    matrices as float32."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        held = _tensor_files(folder)
        self._file_of = {plain_name(stored): (file, stored) for stored, file in held.items()}

    def names(self) -> frozenset[str]:
        return frozenset(self._file_of)

    def __contains__(self, name: object) -> bool:
        return name in self._file_of

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
    if (
        not (folder / SINGLE).exists()
        and not (folder / INDEX).exists()
        and any(folder.glob("*.bin"))
    ):
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

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def get(self, name: str) -> torch.Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise _missing(self._path, name)
        values = _read_tensor(self._path, name, tensor)
        heads = self._heads.get(name.split(".")[-2])
        return unpermute(values, heads) if self._permuted and heads else values


def hf_name(gguf_name: str) -> str | None:
    """The Hugging Face name of a GGUF tensor; None for one no supported family uses."""
    if gguf_name in _TOP_NAMES:
        return _TOP_NAMES[gguf_name]
    block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", gguf_name)
    if block is None or block[2] not in _BLOCK_NAMES:
        return None
    return f"model.layers.{block[1]}.{_BLOCK_NAMES[block[2]]}.{block[3]}"


def unpermute(values: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Rows of each head from interleaved pairs back to two halves. values: [heads * d, ...]"""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])  # [heads, d/2, 2, ...]
    return pairs.transpose(1, 2).reshape(values.shape)


def _read_tensor(path: Path, name: str, tensor: GgufTensor) -> torch.Tensor:
    """One tensor out of the file, copied; quantized types as float32."""
    kind = tensor.type_name
    if tensor.num_bytes == 0:
        raise _no_dequantizer(path, name, kind)
    raw = np.memmap(path, dtype=np.uint8, mode="r", offset=tensor.offset, shape=(tensor.num_bytes,))
    if kind == "F32":
        return torch.from_numpy(np.array(raw.view(np.float32)).reshape(tensor.shape))
    if kind == "F16":
        return torch.from_numpy(np.array(raw.view(np.float16)).reshape(tensor.shape))
    if kind == "BF16":
        bits = np.array(raw.view(np.int16)).reshape(tensor.shape)
        return torch.from_numpy(bits).view(torch.bfloat16)
    try:
        rows = np.asarray(raw).reshape(*tensor.shape[:-1], -1)
        values = dequantize(rows, GGMLQuantizationType(tensor.type_id))
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

"""Reading a spec from a folder or file, and whether this project's engine can run it."""

from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError, ModelError, UnsupportedArchitectureError
from outdraft.modelspec.config import model_from_config
from outdraft.modelspec.gguf_spec import read_gguf
from outdraft.modelspec.head import NUM_TAPS, HeadSpec, check_tensors, head_from_config, head_kind
from outdraft.modelspec.medusa import MedusaSpec, is_medusa, medusa_from_config
from outdraft.modelspec.spec import RUNNABLE_FAMILIES, ModelSpec
from outdraft.modelspec.tensors import (
    INDEX,
    SINGLE,
    TensorEntry,
    damaged_values,
    read_safetensors_header,
    weight_files,
)
from outdraft.whole_file import read_json

AnySpec = ModelSpec | HeadSpec | MedusaSpec


def read_spec(path: Path, *, with_weights: bool = True) -> AnySpec:
    """Read any known model or head: a folder with config.json, or a .gguf file.

    The headers of a folder's weights are read too, if it has any; not `with_weights`, never.
    """
    if path.is_file():
        return read_gguf(path)
    if not path.is_dir():
        raise ModelError(f"no model at {path}; give a folder with config.json or a .gguf file")
    config, source = _read_config(path), path / "config.json"
    has_weights = (path / SINGLE).is_file() or (path / INDEX).is_file()
    entries = _entries(path) if has_weights and with_weights else ()
    with damaged_values(source):
        if head_kind(config) is not None or config.get("speculators_model_type"):
            return head_from_config(config, entries, source)
        if is_medusa(config):
            return medusa_from_config(config, entries)
        generation = path / "generation_config.json"
        defaults = read_json(generation) if generation.is_file() else {}
        return model_from_config(config, defaults, entries, source)


def read_modelspec(path: Path) -> ModelSpec:
    """Read a model that the engine runs, weights and all; others are refused in one line."""
    path = Path(path)
    spec = read_spec(path)
    if isinstance(spec, HeadSpec):
        raise ModelError(f"{path} is a draft head, not a model; use it with method eagle")
    check_runnable(spec, path)
    assert isinstance(spec, ModelSpec)
    if path.is_dir():
        weight_files(path)  # raises where there are none
    return spec


def read_head(folder: Path) -> HeadSpec:
    """Read a head that the engine runs; every tensor must be there and of its shape."""
    folder = Path(folder)
    config = _read_config(folder)
    if head_kind(config) is None:
        kind = config.get("speculators_model_type") or config.get("architectures")
        raise ModelError(
            f"{folder} holds {kind}, not an EAGLE-3 head; for a small model use method draft_model"
        )
    spec = read_spec(folder)
    assert isinstance(spec, HeadSpec)
    check_runnable(spec, folder)
    check_tensors(spec, _entries(folder), folder)
    return spec


def check_runnable(spec: AnySpec, path: Path) -> None:
    """Raises a ModelError that names the first thing the engine does not compute."""
    source = path / "config.json" if path.is_dir() else path
    if isinstance(spec, MedusaSpec):
        raise ModelError(f"{source} is of Medusa heads, which this engine does not run; vLLM does")
    if isinstance(spec, HeadSpec):
        _check_head(spec, source)
    elif spec.family not in RUNNABLE_FAMILIES or spec.experts is not None:
        mixture = f", a mixture of {spec.experts.count} experts" if spec.experts else ""
        raise UnsupportedArchitectureError(
            f"unsupported architecture {spec.family!r}{mixture} in {source}; the engine runs: "
            f"{', '.join(RUNNABLE_FAMILIES)}"
        )
    elif spec.quantization is not None:
        raise ModelError(
            f"{source} holds weights quantized by {spec.quantization!r}, which this engine does "
            "not read; take the unquantized model or a GGUF file of it"
        )
    for feature in spec.other_features:
        raise ModelError(f"{source}: unsupported {feature}")
    if not spec.rms_eps:
        raise CorruptFileError(f"{source} lacks the key 'rms_norm_eps'; fetch it again")


def _check_head(spec: HeadSpec, source: Path) -> None:
    supported = {
        "kind": (spec.kind, "eagle3"),
        "model_type": (spec.family, "llama"),
        "num_hidden_layers": (spec.num_layers, 1),
        "attention_bias": (spec.qkv_bias or spec.o_bias, False),
        "mlp_bias": (spec.mlp_bias, False),
    }
    for name, (value, only) in supported.items():
        if value != only:
            raise ModelError(f"{source}: unsupported {name} {value!r} of a head (only {only!r})")
    if spec.layer_ids is not None and len(spec.layer_ids) != NUM_TAPS:
        raise ModelError(
            f"{source}: a head taps {NUM_TAPS} different layers, got {list(spec.layer_ids)}"
        )


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"no config.json in {folder}; give a model's folder or a .gguf file")
    return read_json(path)


def _entries(folder: Path) -> tuple[TensorEntry, ...]:
    return tuple(each for file in weight_files(folder) for each in read_safetensors_header(file))

"""ModelSpec of a folder: config.json says the shape, the safetensors headers the sizes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError, ModelError
from outdraft.modelspec.rope import read_rope
from outdraft.modelspec.spec import ModelSpec, check_family
from outdraft.modelspec.tensors import (
    TensorEntry,
    bytes_by_dtype,
    read_json,
    read_safetensors_header,
    weight_files,
)

# What a family means when config.json leaves a key out, as transformers has it.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 4096},
    "qwen2": {"sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128},
    "smollm3": {"tie_word_embeddings": True, "rope_theta": 2_000_000.0},
}


def read_folder(folder: Path) -> ModelSpec:
    """Read config.json, generation_config.json when there is one, and the weights' headers."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"no config.json in {folder}; give a model's folder or a .gguf file")
    stored = read_json(path)
    generation = folder / "generation_config.json"
    eos_source = read_json(generation) if generation.is_file() else {}
    try:
        family = check_family(stored["model_type"], path)
        config = {**_DEFAULTS[family], **stored}
        entries = [e for file in weight_files(folder) for e in read_safetensors_header(file)]
        return _build(family, config, eos_source, entries, path)
    except KeyError as error:
        raise CorruptFileError(f"{path} lacks the key {error}; fetch it again") from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CorruptFileError(
            f"{path} holds a value of the wrong kind ({error}); fetch it again"
        ) from error


def _build(
    family: str,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    entries: list[TensorEntry],
    path: Path,
) -> ModelSpec:
    packed = config.get("quantization_config")
    if packed:
        method = packed.get("quant_method", "unknown") if isinstance(packed, dict) else packed
        raise ModelError(
            f"{path} holds weights quantized by {method!r}, which this engine does not read; "
            "take the unquantized model or a GGUF file of it"
        )
    activation = config.get("hidden_act") or "silu"
    if activation != "silu":
        raise ModelError(f"unsupported activation {activation!r} in {path}; supported: silu")
    num_layers = int(config["num_hidden_layers"])
    num_heads = int(config["num_attention_heads"])
    theta, scaling = read_rope(
        config, default_theta=float(config.get("rope_theta") or 10_000.0), source=path
    )
    rope_layers = _rope_layers(family, config, num_layers)
    attention_bias = family != "mistral" and bool(config.get("attention_bias"))
    tied = bool(config.get("tie_word_embeddings", False))
    bos = config.get("bos_token_id")
    return ModelSpec(
        family=family,
        num_layers=num_layers,
        hidden_size=int(config["hidden_size"]),
        intermediate_size=int(config["intermediate_size"]),
        num_heads=num_heads,
        num_kv_heads=int(config.get("num_key_value_heads") or num_heads),
        head_dim=int(config.get("head_dim") or config["hidden_size"] // num_heads),
        vocab_size=int(config["vocab_size"]),
        max_context=int(config["max_position_embeddings"]),
        rms_eps=float(config["rms_norm_eps"]),
        rope_theta=theta,
        rope_scaling=scaling,
        tie_embeddings=tied,
        qkv_bias=family == "qwen2" or attention_bias,
        o_bias=family != "qwen2" and attention_bias,
        mlp_bias=family in ("llama", "smollm3") and bool(config.get("mlp_bias")),
        qk_norm=family == "qwen3",
        rope_layers=rope_layers,
        windows=_windows(family, config, rope_layers),
        # generation_config.json wins, as it does in transformers: an instruct
        # model often lists more end tokens there than in config.json.
        eos_ids=_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
        bos_id=None if bos is None else int(bos),
        num_parameters=sum(e.num_values for e in entries if _is_parameter(e.name, tied)),
        bytes_by_dtype=bytes_by_dtype(entries),
    )


def _is_parameter(name: str, tied: bool) -> bool:
    # Old checkpoints store the rotary frequencies; some store a tied head twice.
    return not name.endswith("rotary_emb.inv_freq") and not (tied and name == "lm_head.weight")


def _rope_layers(family: str, config: Mapping[str, Any], num_layers: int) -> tuple[bool, ...]:
    if family != "smollm3":
        return (True,) * num_layers
    flags = config.get("no_rope_layers")  # despite its name, 1 means "has rope"
    if flags is None:
        interval = int(config.get("no_rope_layer_interval") or 4)
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    return tuple(bool(flags[layer]) for layer in range(num_layers))


def _windows(
    family: str, config: Mapping[str, Any], rope_layers: tuple[bool, ...]
) -> tuple[int | None, ...]:
    num_layers = len(rope_layers)
    window = config.get("sliding_window")
    switched_on = family == "mistral" or bool(config.get("use_sliding_window"))
    if family == "llama" or window is None or not switched_on:
        return (None,) * num_layers
    if family == "mistral":
        slides = [True] * num_layers
    elif config.get("layer_types") is not None:
        slides = [kind == "sliding_attention" for kind in config["layer_types"]]
        if len(slides) != num_layers:
            raise ValueError(f"layer_types has {len(slides)} entries for {num_layers} layers")
    elif family == "smollm3":
        slides = [not rope for rope in rope_layers]
    else:
        slides = [layer >= int(config["max_window_layers"]) for layer in range(num_layers)]
    return tuple(int(window) if slide else None for slide in slides)


def _ids(value: Any) -> tuple[int, ...]:
    if value is None:
        return ()
    return tuple(int(one) for one in value) if isinstance(value, list) else (int(value),)

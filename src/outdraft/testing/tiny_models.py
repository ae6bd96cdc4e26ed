"""Tiny random models of every family the engine knows, written in milliseconds.

    folder = tiny_model(tmp_path / "target", "qwen3")
    draft = tiny_model(tmp_path / "draft", "qwen3", perturb=0.03)   # agrees 2 times in 3

A folder holds what Hugging Face's own would: config.json, model.safetensors, tokenizer.json and
tokenizer_config.json with a chat template. `tiny_gguf` writes one `.gguf` file instead.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from outdraft.errors import unknown_choice
from outdraft.testing.tiny_gguf import GGUF_QUANTS, tiny_gguf
from outdraft.testing.tiny_tokenizer import (
    BOS_ID,
    EOS_ID,
    TOKENIZER_SIZE,
    tiny_vocab,
    tokenizer_config,
    tokenizer_json,
)
from outdraft.testing.tiny_weights import Array, TinyShape, random_weights

__all__ = ["FAMILIES", "GGUF_QUANTS", "tiny_gguf", "tiny_model"]

FAMILIES = ("llama", "llama3", "mistral", "qwen2", "qwen3", "smollm3", "smollm2")

_CLASSES = {
    "llama": ("llama", "LlamaForCausalLM"),
    "llama3": ("llama", "LlamaForCausalLM"),
    "mistral": ("mistral", "MistralForCausalLM"),
    "qwen2": ("qwen2", "Qwen2ForCausalLM"),
    "qwen3": ("qwen3", "Qwen3ForCausalLM"),
    "smollm3": ("smollm3", "SmolLM3ForCausalLM"),
    "smollm2": ("llama", "LlamaForCausalLM"),
}


def tiny_model(
    folder: Path,
    family: str,
    *,
    seed: int = 0,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    intermediate: int = 96,
    vocab: int | None = None,
    context: int = 512,
    perturb: float = 0.0,
    shards: int = 1,
) -> Path:
    """Write a random model of `family` into `folder` and return the folder.

    The same seed gives the same weights. A `vocab` under 384 also cuts the tokenizer, over 384
    only widens the model (as padded vocabularies do).
    """
    if family not in FAMILIES:
        raise unknown_choice("family", family, FAMILIES)
    shape = TinyShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        intermediate=intermediate,
        vocab=TOKENIZER_SIZE if vocab is None else vocab,
        tied=family in ("smollm2", "smollm3"),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", _config(family, shape, context))
    _write_json(folder / "tokenizer.json", tokenizer_json(tiny_vocab(shape.vocab)))
    _write_json(folder / "tokenizer_config.json", tokenizer_config())
    _write_weights(folder, random_weights(shape, seed, perturb), shards)
    return folder


def _config(family: str, shape: TinyShape, context: int) -> dict[str, Any]:
    model_type, class_name = _CLASSES[family]
    common = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": context,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": shape.tied,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "pad_token_id": EOS_ID,
        "torch_dtype": "float32",
    }
    return {**common, **_family_config(family, shape)}


def _family_config(family: str, shape: TinyShape) -> dict[str, Any]:
    if family == "llama3":
        scaling = {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
        return {"rope_theta": 500000.0, "rope_scaling": scaling}
    if family == "mistral":
        return {"sliding_window": 24}
    if family in ("qwen2", "qwen3"):
        return {"rope_theta": 1000000.0, "use_sliding_window": False, "rms_norm_eps": 1e-6}
    if family == "smollm3":  # every second layer without rotary embedding, so two layers have one
        no_rope_layers = [(i + 1) % 2 for i in range(shape.layers)]
        return {
            "rope_theta": 5000000.0,
            "no_rope_layer_interval": 2,
            "no_rope_layers": no_rope_layers,
            "use_sliding_window": False,
        }
    return {}


def _write_weights(folder: Path, weights: dict[str, Array], shards: int) -> None:
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata)
        return
    names = list(weights)
    file_of: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        held = names[shard::shards]
        save_file({name: weights[name] for name in held}, folder / file, metadata)
        file_of.update(dict.fromkeys(held, file))
    total = sum(values.nbytes for values in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": file_of}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(file: Path, contents: dict[str, Any]) -> None:
    file.write_text(json.dumps(contents, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")

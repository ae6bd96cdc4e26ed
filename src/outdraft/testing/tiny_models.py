"""Tiny random models of every family that the engine supports, written in milliseconds.

    folder = tiny_model(tmp_path / "target", "qwen3")
    draft = tiny_model(tmp_path / "draft", "qwen3", perturb=0.03)   # agrees 2 times in 3

A folder holds what Hugging Face's own would: config.json, model.safetensors, tokenizer.json and
tokenizer_config.json with a chat template. `tiny_gguf` writes one `.gguf` file instead.
"""

from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from outdraft.errors import unknown_choice
from outdraft.modelspec import ModelSpec
from outdraft.modelspec.config import layer_config
from outdraft.testing.tiny_gguf import GGUF_QUANTS, tiny_gguf
from outdraft.testing.tiny_tokenizer import BOS_ID, EOS_ID, tokenizer_files
from outdraft.testing.tiny_weights import Array, random_weights, tiny_spec
from outdraft.whole_file import read_json, write_json

__all__ = ["FAMILIES", "GGUF_QUANTS", "tiny_gguf", "tiny_model"]

# What a family's config.json has of its own.
_CONFIGS = read_json(Path(__file__).with_name("tiny_families.json"))
FAMILIES = tuple(_CONFIGS)


def tiny_model(
    folder: Path,
    family: str,
    *,
    seed: int = 0,
    perturb: float = 0.0,
    shards: int = 1,
    **sizes: int,
) -> Path:
    """Write a random model of `family` into `folder` and return the folder.

    The same seed gives the same weights. `sizes` are those of `tiny_spec`; a `vocab` under 384 also
    cuts the tokenizer, over 384 it only widens the model (as padded vocabularies do).
    """
    if family not in FAMILIES:
        raise unknown_choice("family", family, FAMILIES)
    spec = tiny_spec(family, **sizes)
    files = {"config.json": _config(family, spec), **tokenizer_files(spec.vocab_size)}
    for name, contents in files.items():
        write_json(folder / name, contents, indent=2)
    _write_weights(folder, random_weights(spec, seed, perturb), shards)
    return folder


def _config(family: str, spec: ModelSpec) -> dict[str, Any]:
    config = layer_config(spec) | {"tie_word_embeddings": spec.tie_embeddings}
    config |= {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": EOS_ID}
    config |= {"torch_dtype": "float32", **_CONFIGS[family]}
    if interval := config.get("no_rope_layer_interval"):  # 1: the layer has a rotary embedding
        config["no_rope_layers"] = [int((i + 1) % interval > 0) for i in range(spec.num_layers)]
    return config


def _write_weights(folder: Path, weights: dict[str, Array], shards: int) -> None:
    metadata = {"format": "pt"}
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata)
        return
    names = list(weights)
    file_of: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        file_of |= dict.fromkeys(names[shard::shards], file)
        save_file({name: weights[name] for name in names[shard::shards]}, folder / file, metadata)
    total = sum(values.nbytes for values in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": file_of}
    write_json(folder / "model.safetensors.index.json", index, indent=2)

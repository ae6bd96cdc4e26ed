"""A Hugging Face folder from a model of the catalog, for engines that do not read GGUF files.

    python dev/engines/hf_folder.py FOLDER [--target smollm2-135m] [--layers N] [--dtype float32]

The weights are dequantized; the tokenizer is ours, since transformers splits the digits of this
GGUF file's texts wrongly. `--layers` keeps the first N layers only: a poor draft of the target,
which is what a test of speculation needs. Families whose Hugging Face class is Llama's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from outdraft.catalog import resolve
from outdraft.engine.models.weights import open_weights
from outdraft.engine.tokenizer.gguf import gguf_parts
from outdraft.modelspec import ModelSpec, read_modelspec


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    args = parser.parse_args()
    write_folder(args.folder, args.target, num_layers=args.layers, dtype=args.dtype)
    print(args.folder)


def write_folder(
    folder: Path, target: str, *, num_layers: int | None = None, dtype: str = "float32"
) -> None:
    """config.json last: a folder that has it is whole."""
    import torch

    path = resolve(target).path
    spec = read_modelspec(path)
    kept = num_layers or spec.num_layers
    weights = open_weights(path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    tensors = {
        name: weights.get(name).to(getattr(torch, dtype)).contiguous()
        for name in sorted(weights.names())
        if _layer_of(name) < kept and name != "rope_freqs.weight"
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    parts = gguf_parts(path)
    (folder / "tokenizer.json").write_text(parts.tokenizer_json, encoding="utf-8")
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": bool(parts.adds_bos),
            "clean_up_tokenization_spaces": False,
            "chat_template": parts.chat_template,
            **parts.special_tokens,
        },
    )
    ends = list(parts.eos_ids)
    _write(folder / "generation_config.json", {"eos_token_id": ends, "bos_token_id": spec.bos_id})
    _write(folder / "config.json", _config(spec, kept, dtype, ends[0]))


def _config(spec: ModelSpec, num_layers: int, dtype: str, eos_id: int) -> dict[str, Any]:
    if spec.family != "llama" or spec.rope_scaling is not None:
        raise SystemExit(f"only plain Llama-style models are written, this one is {spec.family}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "vocab_size": spec.vocab_size,
        "max_position_embeddings": spec.max_context,
        "rms_norm_eps": spec.rms_eps,
        "rope_theta": spec.rope_theta,
        "tie_word_embeddings": spec.tie_embeddings,
        "attention_bias": spec.qkv_bias,
        "mlp_bias": spec.mlp_bias,
        "hidden_act": "silu",
        "bos_token_id": spec.bos_id,
        "eos_token_id": eos_id,
        "torch_dtype": dtype,
    }


def _layer_of(name: str) -> int:
    parts = name.split(".")
    return int(parts[2]) if parts[:2] == ["model", "layers"] else -1


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The outside of heads, and of a target with layers of its own: enough for an engine's checks, not
for a start."""

from __future__ import annotations

import json
from pathlib import Path


def write_head(folder: Path, target: Path) -> Path:
    """A config.json as heads have it, in the target's sizes."""
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "num_hidden_layers": 1,
        "draft_vocab_size": config["vocab_size"],
        "target_hidden_size": config["hidden_size"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def write_medusa(folder: Path, target: Path) -> Path:
    """Medusa heads in the target's sizes."""
    config = json.loads((target / "config.json").read_text(encoding="utf-8"))
    heads = {
        "model_type": "medusa",
        "hidden_size": config["hidden_size"],
        "vocab_size": config["vocab_size"],
        "num_heads": 3,
        "num_hidden_layers": 1,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(heads), encoding="utf-8")
    return folder


def write_mtp_target(folder: Path) -> Path:
    """A small model built like DeepSeek-V3, with one layer for multi-token prediction."""
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": 4,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "moe_intermediate_size": 192,
        "num_attention_heads": 9,
        "num_key_value_heads": 9,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 192,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder

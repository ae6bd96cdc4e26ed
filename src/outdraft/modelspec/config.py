"""ModelSpec of a config.json, whichever of the families wrote it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from outdraft.modelspec.mtp import num_mtp_layers
from outdraft.modelspec.rope import read_rope
from outdraft.modelspec.spec import (
    MAX_LAYERS,
    DecoderSpec,
    Experts,
    Latent,
    ModelSpec,
    check_count,
    check_family,
)
from outdraft.modelspec.tensors import TensorEntry, stored_sizes

# What a family means when config.json leaves a key out, as transformers has it.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "qwen2": {"sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128},
    "qwen3_moe": {"sliding_window": 4096, "max_window_layers": 28},
    "gpt_oss": {"sliding_window": 128, "attention_bias": True},
    "smollm3": {"tie_word_embeddings": True, "rope_theta": 2_000_000.0},
}
# Fields of a spec → keys of every family's config.json.
_SIZE_KEYS = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "intermediate_size": "intermediate_size",
    "num_heads": "num_attention_heads",
    "vocab_size": "vocab_size",
    "max_context": "max_position_embeddings",
}
_EXPERT_KEYS = {  # of their number, and of the size of one
    "mixtral": ("num_local_experts", "intermediate_size"),
    "gpt_oss": ("num_local_experts", "intermediate_size"),
    "qwen3_moe": ("num_experts", "moe_intermediate_size"),
    "deepseek_v3": ("n_routed_experts", "moe_intermediate_size"),
}
_WINDOWS_ON_REQUEST = ("qwen2", "qwen3", "qwen3_moe", "smollm3")  # use_sliding_window


def model_from_config(
    stored: Mapping[str, Any],
    generation: Mapping[str, Any],
    entries: Iterable[TensorEntry],
    source: Path,
) -> ModelSpec:
    """`stored` is config.json, `generation` generation_config.json, `entries` the weights."""
    # A model that also reads images keeps the text model's config apart.
    text: Any = stored.get("text_config")
    is_part = isinstance(text, dict) and "hidden_size" in text
    config, fields = decoder_fields(text if is_part else stored, source)
    family = fields["family"]
    packed = stored.get("quantization_config") or config.get("quantization_config")
    method = packed.get("quant_method", "unknown") if isinstance(packed, dict) else packed
    # Some checkpoints store a tied output matrix twice.
    tied = bool(config.get("tie_word_embeddings", False))
    bos = config.get("bos_token_id")
    if is_part:
        part = f"model_type {stored.get('model_type')!r}, of which this is the text model"
        fields["other_features"] += (part,)
    return ModelSpec(
        **fields,
        **stored_sizes(entries, ("lm_head.weight",) if tied else ()),
        tie_embeddings=tied,
        has_sinks=family == "gpt_oss",
        experts=_experts(family, config),
        latent=_latent(config) if family == "deepseek_v3" else None,
        mtp_layers=num_mtp_layers(config),
        rope_layers=_rope_layers(family, config),
        quantization=str(method) if packed else None,
        # generation_config.json wins, as it does in transformers: an instruct
        # model often lists more end tokens there than in config.json.
        eos_ids=_ids(generation.get("eos_token_id", config.get("eos_token_id"))),
        bos_id=None if bos is None else int(bos),
    )


def decoder_fields(
    stored: Mapping[str, Any], source: Path
) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """The config with its family's defaults, and the fields of DecoderSpec that it gives."""
    family = check_family(stored["model_type"], source)
    config = {**_DEFAULTS.get(family, {}), **stored}
    sizes = {name: int(config[key]) for name, key in _SIZE_KEYS.items()}
    check_count("num_hidden_layers", sizes["num_layers"], MAX_LAYERS)
    heads = sizes["num_heads"]
    if family == "deepseek_v3":
        head_dim = int(config["qk_nope_head_dim"]) + int(config["qk_rope_head_dim"])
    else:
        head_dim = int(config.get("head_dim") or sizes["hidden_size"] // heads)
    has_bias = family not in ("mistral", "mixtral") and bool(config.get("attention_bias"))
    theta, scaling, features = read_rope(config)
    activation = config.get("hidden_act") or "silu"
    if activation != "silu":
        features += (f"activation {activation!r} (supported: silu)",)
    return config, {
        "family": family,
        **sizes,
        "num_kv_heads": int(config.get("num_key_value_heads") or heads),
        "head_dim": head_dim,
        "qkv_bias": family == "qwen2" or has_bias,
        "o_bias": family != "qwen2" and has_bias,
        "mlp_bias": family in ("llama", "smollm3") and bool(config.get("mlp_bias")),
        "qk_norm": family in ("qwen3", "qwen3_moe"),
        "rms_eps": float(config.get("rms_norm_eps") or 0.0),
        "rope_theta": theta,
        "rope_scaling": scaling,
        "windows": _windows(family, config),
        "other_features": features,
    }


def layer_config(spec: DecoderSpec) -> dict[str, Any]:
    """A spec's sizes and norms as keys of config.json; biases and rope are the caller's."""
    return {
        **{key: getattr(spec, name) for name, key in _SIZE_KEYS.items()},
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "rms_norm_eps": spec.rms_eps,
        "rope_theta": spec.rope_theta,
        "hidden_act": "silu",
        "mlp_bias": spec.mlp_bias,
    }


def _experts(family: str, config: Mapping[str, Any]) -> Experts | None:
    if family not in _EXPERT_KEYS:
        return None
    if family == "qwen3_moe" and (
        int(config.get("decoder_sparse_step", 1)) != 1 or config.get("mlp_only_layers")
    ):
        raise ValueError("qwen3_moe is supported with experts in every layer only")
    count_key, size_key = _EXPERT_KEYS[family]
    is_deepseek = family == "deepseek_v3"
    return Experts(
        _number(config, count_key, "num_local_experts"),
        _number(config, "num_experts_per_tok", "experts_per_token"),
        int(config[size_key]),
        shared=int(config.get("n_shared_experts") or 0) if is_deepseek else 0,
        dense_layers=int(config["first_k_dense_replace"]) if is_deepseek else 0,
        has_bias=family == "gpt_oss",
        has_router_bias=family in ("gpt_oss", "deepseek_v3"),
    )


def _number(config: Mapping[str, Any], key: str, other: str) -> int:
    """A number that versions of transformers write under one of two names."""
    return int(config[other] if config.get(key) is None and other in config else config[key])


def _latent(config: Mapping[str, Any]) -> Latent:
    q_rank = config.get("q_lora_rank")
    return Latent(
        q_rank=None if q_rank is None else int(q_rank),
        kv_rank=int(config["kv_lora_rank"]),
        nope_dim=int(config["qk_nope_head_dim"]),
        rope_dim=int(config["qk_rope_head_dim"]),
        v_dim=int(config["v_head_dim"]),
    )


def _rope_layers(family: str, config: Mapping[str, Any]) -> tuple[bool, ...]:
    layers = range(int(config["num_hidden_layers"]))
    if family != "smollm3":
        return (True,) * len(layers)
    flags = config.get("no_rope_layers")  # despite its name, 1 means "has rope"
    if flags is None:
        interval = int(config.get("no_rope_layer_interval") or 4)
        return tuple((layer + 1) % interval != 0 for layer in layers)
    if len(flags) < len(layers):
        raise ValueError(f"no_rope_layers has {len(flags)} entries for {len(layers)} layers")
    return tuple(bool(flags[layer]) for layer in layers)


def _windows(family: str, config: Mapping[str, Any]) -> tuple[int | None, ...]:
    layers, window = range(int(config["num_hidden_layers"])), config.get("sliding_window")
    is_off = family in _WINDOWS_ON_REQUEST and not config.get("use_sliding_window")
    if family in ("llama", "deepseek_v3") or window is None or is_off:
        return ()
    kinds = config.get("layer_types")
    if family in ("mistral", "mixtral"):
        slides = [True] * len(layers)
    elif kinds is not None:
        slides = [kind == "sliding_attention" for kind in kinds]
        if len(slides) != len(layers):
            raise ValueError(f"layer_types has {len(slides)} entries for {len(layers)} layers")
    elif family == "gpt_oss":
        slides = [layer % 2 == 0 for layer in layers]
    elif family == "smollm3":
        slides = [not has_rope for has_rope in _rope_layers(family, config)]
    else:
        slides = [layer >= int(config["max_window_layers"]) for layer in layers]
    return tuple(int(window) if slide else None for slide in slides)


def _ids(value: Any) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(int(each) for each in values if each is not None)

"""Architecture of a config.json, whichever of the families wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError, ModelError, UnsupportedArchitectureError
from outdraft.plan.architecture import (
    MAX_LAYERS,
    Architecture,
    Experts,
    Head,
    Latent,
    check_count,
    check_family,
)

# What a family means when config.json leaves a key out, as transformers has it.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "mistral": {"sliding_window": 4096},
    "qwen2": {"sliding_window": 4096, "max_window_layers": 28},
    "qwen3": {"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128},
    "qwen3_moe": {"sliding_window": 4096, "max_window_layers": 28},
    "gpt_oss": {"sliding_window": 128, "attention_bias": True},
    "smollm3": {"tie_word_embeddings": True},
}
_HAS_SWITCHED_WINDOWS = ("qwen2", "qwen3", "qwen3_moe", "smollm3")


def read_config(path: Path) -> Architecture:
    """Read a config.json; a key that is needed and missing is named."""
    from outdraft.modelspec.tensors import read_json

    if not path.is_file():
        raise ModelError(f"no config.json in {path.parent}; give a model's folder or a .gguf file")
    config = read_json(path)
    try:
        kind = _head_kind(config, path)
        if kind is not None:
            return _build_head(kind, config, path)
        # A model that also sees images keeps the text model's shape apart.
        text = config.get("text_config")
        return _build(text if isinstance(text, dict) and "hidden_size" in text else config, path)
    except KeyError as error:
        raise CorruptFileError(f"{path} lacks the key {error}; fetch it again") from error
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise CorruptFileError(
            f"{path} holds a value of the wrong kind ({error}); fetch it again"
        ) from error


def _build(stored: Mapping[str, Any], path: Path, head: Head | None = None) -> Architecture:
    family = check_family(stored["model_type"], path)
    config = {**_DEFAULTS.get(family, {}), **stored}
    layers = check_count("num_hidden_layers", int(config["num_hidden_layers"]), MAX_LAYERS)
    heads = int(config["num_attention_heads"])
    hidden = int(config["hidden_size"])
    latent = _latent(config) if family == "deepseek_v3" else None
    head_dim = (
        int(config.get("head_dim") or hidden // heads)
        if latent is None
        else latent.nope_dim + latent.rope_dim
    )
    has_bias = family not in ("mistral", "mixtral") and bool(config.get("attention_bias"))
    return Architecture(
        family=family,
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=int(config["intermediate_size"]),
        num_heads=heads,
        num_kv_heads=int(config.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        vocab_size=int(config["vocab_size"]),
        max_context=int(config["max_position_embeddings"]),
        tie_embeddings=bool(config.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2" or has_bias,
        o_bias=family != "qwen2" and has_bias,
        mlp_bias=family in ("llama", "smollm3") and bool(config.get("mlp_bias")),
        qk_norm=family in ("qwen3", "qwen3_moe"),
        has_sinks=family == "gpt_oss",
        experts=_experts(family, config),
        latent=latent,
        windows=_windows(family, config, layers),
        head=head,
    )


def _experts(family: str, config: Mapping[str, Any]) -> Experts | None:
    if family == "mixtral":
        return Experts(
            int(config["num_local_experts"]),
            int(config["num_experts_per_tok"]),
            int(config["intermediate_size"]),
        )
    if family == "gpt_oss":
        return Experts(
            int(config["num_local_experts"]),
            _either(config, "num_experts_per_tok", "experts_per_token"),
            int(config["intermediate_size"]),
            has_bias=True,
            has_router_bias=True,
        )
    if family == "qwen3_moe":
        if int(config.get("decoder_sparse_step", 1)) != 1 or config.get("mlp_only_layers"):
            raise ValueError("only every layer with experts is known for qwen3_moe")
        return Experts(
            _either(config, "num_experts", "num_local_experts"),
            int(config["num_experts_per_tok"]),
            int(config["moe_intermediate_size"]),
        )
    if family == "deepseek_v3":
        return Experts(
            _either(config, "n_routed_experts", "num_local_experts"),
            int(config["num_experts_per_tok"]),
            int(config["moe_intermediate_size"]),
            shared=int(config.get("n_shared_experts") or 0),
            dense_layers=int(config["first_k_dense_replace"]),
            has_router_bias=True,
        )
    return None


def _either(config: Mapping[str, Any], key: str, also: str) -> int:
    """A number that versions of transformers write under two names."""
    return int(config[also] if config.get(key) is None and also in config else config[key])


def _latent(config: Mapping[str, Any]) -> Latent:
    q_rank = config.get("q_lora_rank")
    return Latent(
        q_rank=None if q_rank is None else int(q_rank),
        kv_rank=int(config["kv_lora_rank"]),
        nope_dim=int(config["qk_nope_head_dim"]),
        rope_dim=int(config["qk_rope_head_dim"]),
        v_dim=int(config["v_head_dim"]),
    )


def _windows(family: str, config: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    is_off = family in _HAS_SWITCHED_WINDOWS and not config.get("use_sliding_window")
    if family in ("llama", "deepseek_v3") or window is None or is_off:
        return ()
    if kinds is not None:
        if len(kinds) != layers:
            raise ValueError(f"layer_types has {len(kinds)} entries for {layers} layers")
        slides = [kind == "sliding_attention" for kind in kinds]
    elif family == "gpt_oss":
        slides = [layer % 2 == 0 for layer in range(layers)]
    elif family == "smollm3":  # the layers without rotary embedding, every fourth
        interval = int(config.get("no_rope_layer_interval") or 4)
        slides = [(layer + 1) % interval == 0 for layer in range(layers)]
    elif family in _HAS_SWITCHED_WINDOWS:
        slides = [layer >= int(config["max_window_layers"]) for layer in range(layers)]
    else:
        slides = [True] * layers
    return tuple(int(window) if slide else None for slide in slides)


def _head_kind(config: Mapping[str, Any], path: Path) -> str | None:
    named = [str(config.get("speculators_model_type") or ""), *(config.get("architectures") or [])]
    text = " ".join(map(str, named)).lower()
    if "eagle3" in text or "peagle" in text:  # the parallel kind has the same shape
        return "eagle3"
    if "eagle" in text:
        return "eagle"
    if config.get("speculators_model_type"):
        raise UnsupportedArchitectureError(
            f"{path} is a draft head of the kind {config['speculators_model_type']!r}; a plan "
            "knows: eagle, eagle3"
        )
    return None


def _build_head(kind: str, config: Mapping[str, Any], path: Path) -> Architecture:
    """The decoder layer is written at the top, or apart as the speculators library does."""
    layer = config.get("transformer_layer_config") or config
    nested = config.get("eagle_config") or {}
    taps = config.get("eagle_aux_hidden_state_layer_ids")
    if taps is None:
        taps = nested.get("eagle_aux_hidden_state_layer_ids")
    hidden = int(layer["hidden_size"])
    head = Head(
        kind=kind,
        target_hidden_size=int(config.get("target_hidden_size") or hidden),
        taps=None if taps is None else tuple(int(tap) for tap in taps),
        draft_vocab_size=int(config.get("draft_vocab_size") or layer["vocab_size"]),
    )
    plain = {"num_hidden_layers": 1, "model_type": "llama", **layer}
    if plain["model_type"] not in ("llama", "qwen2", "qwen3", "mistral"):
        plain["model_type"] = "llama"  # "eagle" and the like: the layer is a llama's
    return _build(plain, path, head)

"""HeadSpec: a draft that is one transformer layer over the target's own hidden states.

This is the layout of EAGLE-3 as vLLM and `speculators` read it; `outdraft distill` writes it too.
A folder holds config.json and model.safetensors. H is the head's hidden size, G the target's,
V the target's vocabulary, D ≤ V the draft vocabulary; weights are (out, in) as ever:

    fc.weight                                  (H, 3·G)  three tapped hidden states → one
    layers.0.input_layernorm.weight            (H)       norm of the token's embedding
    layers.0.hidden_norm.weight                (H)       norm of the hidden state
    layers.0.self_attn.q_proj.weight           (heads·d, 2·H); k_proj, v_proj (kv_heads·d, 2·H)
    layers.0.self_attn.o_proj.weight           (H, heads·d)
    layers.0.post_attention_layernorm.weight   (H)
    layers.0.mlp.gate_proj, up_proj.weight     (I, H);  down_proj.weight (H, I)
    norm.weight                                (H)       before the lm_head
    lm_head.weight                             (D, H)
    d2t   (D) int64: target id = draft id + d2t[draft id]; may be left out where D = V
    t2d   (V) bool: is the target's token in the draft vocabulary (not needed to run)
    embed_tokens.weight (V, H), optional: else the target's own embedding, and then H = G

A matrix may lie in blocks of few bits, under a longer name: see packed.py. Beside an lm_head in
blocks there may be lm_head.columns (H): then the blocks hold the difference between the lm_head and
the target's own embeddings of the draft vocabulary, dimension by dimension times the columns.

Older files name the layer `midlayer.` instead of `layers.0.`; both are read.

**What it computes.** Tap i is the target's residual stream *entering* layer i, that is behind
the first i layers (0: the embedding; the number of layers: what the last norm gets), as vLLM
counts them. With f(t) = fc(the three taps at position t, one after another in order of layers):

    step 1   at position t: hidden = f(t),       token x(t+1)  → predicts x(t+2)
    step j   at position t+j-1: hidden = the output of step j-1, token = what that one drew

    e, h     = input_layernorm(embedding of the token), hidden_norm(hidden)
    residual = h if norm_before_residual else hidden
    x        = residual + o_proj(attention(q, k, v of [e, h]))           [e first, then h]
    output   = x + mlp(post_attention_layernorm(x))                      silu(gate)·up, then down
    logits   = lm_head(norm(output))

A step's query sees the keys of all positions up to its own: those of positions ≤ t come from true
features f, those behind from the head's own outputs. When the target has verified the round, the
positions of accepted tokens are computed again from their true features. Keys and queries are
rotated by position, in halves, as Llama does; where the count of positions starts does not matter.

**config.json** comes in two forms. `speculators`: "speculators_model_type": "eagle3", the layer
under "transformer_layer_config" (a Llama config with the *target's* vocab_size), and beside it
draft_vocab_size, eagle_aux_hidden_state_layer_ids, norm_before_residual (true when left out),
target_hidden_size. Original: "architectures": ["LlamaForCausalLMEagle3"], all of it flat
(norm_before_residual false when left out); an "eagle_config" inside it counts layers by their
outputs, so one is added. Without layer ids taps are (2, n // 2, n - 3) of the target's n layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError, ModelError, PairingError
from outdraft.modelspec.packed import packed_type, plain_name, plain_shape
from outdraft.modelspec.rope import RopeScaling, read_rope
from outdraft.modelspec.spec import ModelSpec
from outdraft.modelspec.tensors import SINGLE, read_json, read_safetensors_header, weight_files

NUM_TAPS = 3
EMBEDDING = "embed_tokens.weight"
LM_HEAD = "lm_head.weight"
COLUMNS = "lm_head.columns"
_ARCHITECTURES = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator")


@dataclass(frozen=True, slots=True)
class HeadSpec:
    """A head's shape; nothing about its weights' values."""

    hidden_size: int
    target_hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # the target's
    draft_vocab_size: int
    rms_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    norm_before_residual: bool
    layer_ids: tuple[int, ...] | None = None  # taps, ascending; None: the usual three
    has_embedding: bool = False  # its own; else it reads the target's
    max_context: int = 2048  # what the files say; the engine lets a head go on behind it

    def __post_init__(self) -> None:
        sizes = ("hidden_size", "target_hidden_size", "intermediate_size", "num_heads")
        for name in (*sizes, "num_kv_heads", "head_dim", "vocab_size", "draft_vocab_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_heads} heads over {self.num_kv_heads} kv heads of {self.head_dim}"
            )
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"a draft vocabulary of {self.draft_vocab_size} is over the vocabulary's "
                f"{self.vocab_size}"
            )

    def taps(self, num_layers: int) -> tuple[int, ...]:
        """Which of the target's layers are tapped: the stream entering them, ascending."""
        return self.layer_ids or (2, num_layers // 2, num_layers - 3)

    def kv_bytes_per_token(self, bytes_per_value: int = 2) -> int:
        return 2 * self.num_kv_heads * self.head_dim * bytes_per_value

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that is needed to run, by its name; d2t where it cannot be left out."""
        hidden, width = self.hidden_size, self.intermediate_size
        queries, kv = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        layer, attention, mlp = "layers.0", "layers.0.self_attn", "layers.0.mlp"
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (hidden, NUM_TAPS * self.target_hidden_size),
            f"{layer}.input_layernorm.weight": (hidden,),
            f"{layer}.hidden_norm.weight": (hidden,),
            f"{attention}.q_proj.weight": (queries, 2 * hidden),
            f"{attention}.k_proj.weight": (kv, 2 * hidden),
            f"{attention}.v_proj.weight": (kv, 2 * hidden),
            f"{attention}.o_proj.weight": (hidden, queries),
            f"{layer}.post_attention_layernorm.weight": (hidden,),
            f"{mlp}.gate_proj.weight": (width, hidden),
            f"{mlp}.up_proj.weight": (width, hidden),
            f"{mlp}.down_proj.weight": (hidden, width),
            "norm.weight": (hidden,),
            "lm_head.weight": (self.draft_vocab_size, hidden),
        }
        if self.draft_vocab_size < self.vocab_size:
            shapes["d2t"] = (self.draft_vocab_size,)
        if self.has_embedding:
            shapes[EMBEDDING] = (self.vocab_size, hidden)
        return shapes


def canonical_name(stored: str) -> str:
    """A tensor's name in the layout above, whatever a file calls it."""
    return stored.replace("midlayer.", "layers.0.", 1).removeprefix("model.")


def is_head(path: Path) -> bool:
    """Whether a folder holds a head and not a model."""
    config = path / "config.json"
    return config.is_file() and is_head_config(read_json(config))


def is_head_config(config: Mapping[str, Any]) -> bool:
    """Whether what a config.json holds describes a head."""
    known = any(name in _ARCHITECTURES for name in config.get("architectures") or ())
    return known or config.get("speculators_model_type") == "eagle3"


def is_packed(path: Path) -> bool:
    """Whether a folder holds a head some of whose matrices lie in blocks."""
    if not is_head(path) or not (path / SINGLE).is_file():
        return False
    return any(packed_type(entry.name) for entry in read_safetensors_header(path / SINGLE))


def read_head(folder: Path) -> HeadSpec:
    """Reads config.json and the weights' headers; every tensor must be there and of its shape."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ModelError(f"no config.json in {folder}; give the folder of an EAGLE-3 head")
    config = read_json(path)
    if not is_head_config(config):
        kind = config.get("speculators_model_type") or config.get("architectures")
        raise ModelError(
            f"{path} describes {kind}, not an EAGLE-3 head; for a small model use method "
            "draft_model"
        )
    entries = [e for file in weight_files(Path(folder)) for e in read_safetensors_header(file)]
    stored = {
        canonical_name(plain_name(entry.name)): plain_shape(entry.name, entry.shape)
        for entry in entries
    }
    try:
        spec = _build(config, has_embedding=EMBEDDING in stored, path=path)
    except KeyError as error:
        raise CorruptFileError(f"{path} lacks the key {error}; fetch it again") from error
    except (TypeError, ValueError, ZeroDivisionError) as error:
        raise CorruptFileError(f"{path} cannot be used: {error}") from error
    shapes = spec.tensor_shapes()
    if COLUMNS in stored:
        shapes[COLUMNS] = (spec.hidden_size,)
    for name, shape in shapes.items():
        if name not in stored:
            raise CorruptFileError(f"{folder}: tensor {name!r} of the head is missing")
        if stored[name] != shape:
            raise CorruptFileError(
                f"{folder}: tensor {name!r} has shape {stored[name]} where config.json makes it "
                f"{shape}; the files do not belong together"
            )
    return spec


def check_head(head: HeadSpec, target: ModelSpec, *, name: str, target_name: str) -> None:
    """Raises PairingError unless the head was made for a target of this shape."""

    def refuse(what: str) -> PairingError:
        return PairingError(
            f"head {name} does not fit target {target_name}: {what}; choose a head that was "
            "trained on this target"
        )

    if head.target_hidden_size != target.hidden_size:
        raise refuse(
            f"it reads hidden states of {head.target_hidden_size} numbers, the target's have "
            f"{target.hidden_size}"
        )
    if head.vocab_size != target.vocab_size:
        raise refuse(
            f"its vocabulary has {head.vocab_size} tokens, the target's {target.vocab_size}"
        )
    if not head.has_embedding and head.hidden_size != target.hidden_size:
        raise refuse(
            f"it has no embedding of its own and a hidden size of {head.hidden_size}, the "
            f"target's is {target.hidden_size}"
        )
    taps = head.taps(target.num_layers)
    if not 0 <= taps[0] < taps[1] < taps[2] <= target.num_layers:
        raise refuse(
            f"it taps layers {', '.join(map(str, taps))}, the target has {target.num_layers}"
        )


def head_config(
    head: HeadSpec, *, target_name: str, k: int, target_class: str = "LlamaForCausalLM"
) -> dict[str, Any]:
    """config.json of a head in the `speculators` form, the one this project writes.

    target_name, target_class and k (the draft length it is meant for) are for vLLM.
    """
    rope: dict[str, Any] = {"rope_theta": head.rope_theta}
    if head.rope_scaling is not None:
        rope["rope_scaling"] = _rope_config(head.rope_scaling)
    layer = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 1,
        "hidden_size": head.hidden_size,
        "intermediate_size": head.intermediate_size,
        "num_attention_heads": head.num_heads,
        "num_key_value_heads": head.num_kv_heads,
        "head_dim": head.head_dim,
        "vocab_size": head.vocab_size,
        "max_position_embeddings": head.max_context,
        "rms_norm_eps": head.rms_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": False,
        **rope,
    }
    proposal = {"proposal_type": "greedy", "speculative_tokens": k}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": target_name, "architectures": [target_class]},
        },
        "draft_vocab_size": head.draft_vocab_size,
        "target_hidden_size": head.target_hidden_size,
        "norm_before_residual": head.norm_before_residual,
        "has_own_embed_tokens": head.has_embedding,
        "eagle_aux_hidden_state_layer_ids": list(head.layer_ids) if head.layer_ids else None,
        "transformer_layer_config": layer,
    }


def _rope_config(scaling: RopeScaling) -> dict[str, Any]:
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    if scaling.kind == "factors":
        raise ValueError("config.json has no way to write one rope factor for each pair")
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_context,
    }


def _build(config: Mapping[str, Any], *, has_embedding: bool, path: Path) -> HeadSpec:
    nested = config.get("transformer_layer_config")
    layer: Mapping[str, Any] = config if nested is None else nested
    _refuse_variants(config, layer, path)
    hidden, num_heads = int(layer["hidden_size"]), int(layer["num_attention_heads"])
    theta, scaling = read_rope(
        layer, default_theta=float(layer.get("rope_theta") or 10_000.0), source=path
    )
    vocab = int(layer["vocab_size"])
    return HeadSpec(
        hidden_size=hidden,
        target_hidden_size=int(config.get("target_hidden_size") or hidden),
        intermediate_size=int(layer["intermediate_size"]),
        num_heads=num_heads,
        num_kv_heads=int(layer.get("num_key_value_heads") or num_heads),
        head_dim=int(layer.get("head_dim") or hidden // num_heads),
        vocab_size=vocab,
        draft_vocab_size=int(config.get("draft_vocab_size") or vocab),
        rms_eps=float(layer["rms_norm_eps"]),
        rope_theta=theta,
        rope_scaling=scaling,
        norm_before_residual=bool(config.get("norm_before_residual", nested is not None)),
        layer_ids=_layer_ids(config),
        has_embedding=has_embedding,
        max_context=int(layer.get("max_position_embeddings") or 2048),
    )


def _layer_ids(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids, shift = config.get("eagle_aux_hidden_state_layer_ids"), 0
    inner = config.get("eagle_config")
    if not ids and isinstance(inner, dict):
        # SGLang's form: it names the layers whose outputs are tapped.
        ids, shift = inner.get("eagle_aux_hidden_state_layer_ids"), 1
    if not ids:
        return None
    found = sorted({int(one) + shift for one in ids})
    if len(found) != NUM_TAPS:
        raise ValueError(f"a head taps {NUM_TAPS} different layers, got {list(ids)}")
    return tuple(found)


def _refuse_variants(config: Mapping[str, Any], layer: Mapping[str, Any], path: Path) -> None:
    """Heads of the same family that compute something else."""
    variants = {
        "model_type": (layer.get("model_type") or "llama", "llama"),
        "num_hidden_layers": (layer.get("num_hidden_layers", 1), 1),
        "hidden_act": (layer.get("hidden_act") or "silu", "silu"),
        "attention_bias": (bool(layer.get("attention_bias")), False),
        "mlp_bias": (bool(layer.get("mlp_bias")), False),
        "norm_before_fc": (bool(config.get("norm_before_fc")), False),
    }
    for name, (seen, supported) in variants.items():
        if seen != supported:
            raise ModelError(f"unsupported {name} {seen!r} of a head in {path}; only {supported!r}")

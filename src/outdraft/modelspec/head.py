"""HeadSpec: a draft head, that is a transformer layer over the target's own hidden states.

The layout is that of EAGLE-3 as vLLM and `speculators` read it; `outdraft distill` writes it too.
docs/heads.md has every tensor with its shape, what a head computes, and both forms of config.json.
EAGLE heads of the first generation (one fused state, any number of layers) are read for planning
and not run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from outdraft.errors import CorruptFileError, PairingError, UnsupportedArchitectureError
from outdraft.modelspec.config import decoder_fields, layer_config
from outdraft.modelspec.medusa import is_medusa
from outdraft.modelspec.packed import packed_type, plain_name, plain_shape
from outdraft.modelspec.rope import rope_config
from outdraft.modelspec.spec import DecoderSpec, ModelSpec, check_count
from outdraft.modelspec.tensors import SINGLE, TensorEntry, read_safetensors_header, stored_sizes
from outdraft.whole_file import read_json

NUM_TAPS = 3
EMBEDDING = "embed_tokens.weight"
LM_HEAD = "lm_head.weight"
COLUMNS = "lm_head.columns"
_LAYER_FAMILIES = ("llama", "qwen2", "qwen3", "mistral")
_KINDS = {"draft_model": "model", "eagle": "head", "medusa": "set of Medusa heads"}  # of a method
_LAYER_IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec(DecoderSpec):
    """A head's shape; nothing about its weights' values. vocab_size is the target's."""

    kind: str = "eagle3"  # or eagle
    target_hidden_size: int
    draft_vocab_size: int
    norm_before_residual: bool = False
    layer_ids: tuple[int, ...] | None = None  # taps, ascending; None: the usual three
    has_embedding: bool = False  # its own; else it reads the target's

    def __post_init__(self) -> None:
        DecoderSpec.__post_init__(self)
        check_count("target_hidden_size", self.target_hidden_size)
        check_count("draft_vocab_size", self.draft_vocab_size)
        if self.draft_vocab_size > self.vocab_size:
            raise ValueError(
                f"a draft vocabulary of {self.draft_vocab_size} is over the vocabulary's "
                f"{self.vocab_size}"
            )

    @property
    def num_taps(self) -> int:
        """Hidden states of the target that are fused into one."""
        if self.kind == "eagle":
            return 1
        return NUM_TAPS if self.layer_ids is None else len(self.layer_ids)

    def taps(self, num_layers: int) -> tuple[int, ...]:
        """Which of the target's layers are tapped: the stream entering them, ascending."""
        if self.kind == "eagle":  # reads the target's last hidden state only
            return ()
        return self.layer_ids or (2, num_layers // 2, num_layers - 3)

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
            LM_HEAD: (self.draft_vocab_size, hidden),
        }
        if self.draft_vocab_size < self.vocab_size:
            shapes["d2t"] = (self.draft_vocab_size,)
        if self.has_embedding:
            shapes[EMBEDDING] = (self.vocab_size, hidden)
        return shapes


def canonical_name(stored: str) -> str:
    """A tensor's name in the layout of docs/heads.md, whatever a file calls it."""
    return stored.replace("midlayer.", "layers.0.", 1).removeprefix("model.")


def head_kind(config: Mapping[str, Any]) -> str | None:
    """eagle or eagle3 for the config.json of a head; None for a model's."""
    names = _names(config)
    if "eagle3" in names or "peagle" in names:  # the parallel kind has the same shape
        return "eagle3"
    return "eagle" if "eagle" in names else None


def _names(config: Mapping[str, Any]) -> str:
    # As text: a value of the wrong kind is no error here, where any folder may be asked about.
    return f"{config.get('speculators_model_type')} {config.get('architectures')}".lower()


def is_head(path: Path) -> bool:
    """Whether a folder holds a head and not a model."""
    config = path / "config.json"
    return config.is_file() and head_kind(read_json(config)) is not None


def draft_method(path: Path) -> str | None:
    """The method that a draft in this folder or file is for; None where there is neither a head
    nor a model."""
    if is_head(path):
        return "eagle"
    config = path / "config.json"
    if config.is_file() and is_medusa(read_json(config)):
        return "medusa"
    is_model = (path / "config.json").is_file() or (path.suffix == ".gguf" and path.is_file())
    return "draft_model" if is_model else None


def check_draft_kind(method: str, path: Path, name: str) -> None:
    """Raises PairingError for a head as draft_model, for a model as eagle, and so on."""
    fitting = draft_method(path)
    if fitting is None or fitting == method or method not in _KINDS:
        return
    is_one, is_none = _KINDS[fitting], _KINDS[method]
    raise PairingError(f"draft {name} is a {is_one}, not a {is_none}; use method {fitting}")


def is_packed(path: Path) -> bool:
    """Whether a folder holds a head some of whose matrices are stored in blocks."""
    if not is_head(path) or not (path / SINGLE).is_file():
        return False
    return any(packed_type(entry.name) for entry in read_safetensors_header(path / SINGLE))


def head_from_config(
    config: Mapping[str, Any], entries: Sequence[TensorEntry], source: Path
) -> HeadSpec:
    """A head of any kind from its config.json and the headers of its weights, if there are any."""
    kind = head_kind(config)
    if kind is None:
        raise UnsupportedArchitectureError(
            f"{source} is a draft head of the kind {config.get('speculators_model_type')!r}; "
            "known kinds: eagle, eagle3"
        )
    nested = config.get("transformer_layer_config")
    layer = {"num_hidden_layers": 1, **(nested or config)}
    layer["max_position_embeddings"] = layer.get("max_position_embeddings") or 2048
    family = layer.get("model_type") or "llama"
    layer["model_type"] = family if family in _LAYER_FAMILIES else "llama"
    _, fields = decoder_fields(layer, source)
    if family not in _LAYER_FAMILIES:
        fields["other_features"] += (f"model_type {family!r} of a head (supported: llama)",)
    if "peagle" in _names(config):
        fields["other_features"] += ("parallel drafting of a head (P-EAGLE)",)
    if config.get("norm_before_fc"):
        fields["other_features"] += ("norm_before_fc of a head (supported: False)",)
    return HeadSpec(
        **fields,
        **stored_sizes(entries),
        kind=kind,
        target_hidden_size=int(config.get("target_hidden_size") or fields["hidden_size"]),
        draft_vocab_size=int(config.get("draft_vocab_size") or fields["vocab_size"]),
        norm_before_residual=bool(config.get("norm_before_residual", nested is not None)),
        layer_ids=_layer_ids(config),
        has_embedding=any(canonical_name(plain_name(each.name)) == EMBEDDING for each in entries),
    )


def _layer_ids(config: Mapping[str, Any]) -> tuple[int, ...] | None:
    ids, shift = config.get(_LAYER_IDS), 0
    inner = config.get("eagle_config")
    if not ids and isinstance(inner, dict):
        ids, shift = inner.get(_LAYER_IDS), 1  # SGLang's form counts layers by their outputs
    return tuple(sorted({int(one) + shift for one in ids})) if ids else None


def check_tensors(head: HeadSpec, entries: Sequence[TensorEntry], folder: Path) -> None:
    """Every tensor that is needed to run must be there and of its shape."""
    stored = {
        canonical_name(plain_name(entry.name)): plain_shape(entry.name, entry.shape)
        for entry in entries
    }
    shapes = head.tensor_shapes()
    if COLUMNS in stored:
        shapes[COLUMNS] = (head.hidden_size,)
    for name, shape in shapes.items():
        if name not in stored:
            raise CorruptFileError(f"{folder}: tensor {name!r} of the head is missing")
        if stored[name] != shape:
            raise CorruptFileError(
                f"{folder}: tensor {name!r} has shape {stored[name]} where config.json makes it "
                f"{shape}; the files do not belong together"
            )


def check_head_fits(head: HeadSpec, target: ModelSpec, *, name: str, target_name: str) -> None:
    """Raises PairingError unless the head was made for a target of this shape."""
    taps = head.taps(target.num_layers)
    is_ascending = all(low < high for low, high in pairwise(taps))
    is_inside = all(0 <= tap <= target.num_layers for tap in taps)
    if head.target_hidden_size != target.hidden_size:
        problem = f"it reads hidden states of {head.target_hidden_size} numbers, the target's have "
        problem += str(target.hidden_size)
    elif head.vocab_size != target.vocab_size:
        problem = f"its vocabulary has {head.vocab_size} tokens, the target's {target.vocab_size}"
    elif not head.has_embedding and head.hidden_size != target.hidden_size:
        problem = f"it has no embedding of its own and a hidden size of {head.hidden_size}, the "
        problem += f"target's is {target.hidden_size}"
    elif not is_ascending or not is_inside:
        problem = f"it taps layers {', '.join(map(str, taps))}, the target has {target.num_layers}"
    else:
        return
    raise PairingError(
        f"head {name} does not fit target {target_name}: {problem}; choose a head that was trained "
        "on this target"
    )


def head_config(head: HeadSpec, *, target_name: str, k: int) -> dict[str, Any]:
    """config.json of a head in the `speculators` form, the one this project writes.

    target_name and k (the draft length it is meant for) are for vLLM.
    """
    layer = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        **layer_config(head),
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    if head.rope_scaling is not None:
        layer["rope_scaling"] = rope_config(head.rope_scaling)
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": k}],
            "verifier": {"name_or_path": target_name, "architectures": ["LlamaForCausalLM"]},
        },
        "draft_vocab_size": head.draft_vocab_size,
        "target_hidden_size": head.target_hidden_size,
        "norm_before_residual": head.norm_before_residual,
        "has_own_embed_tokens": head.has_embedding,
        _LAYER_IDS: list(head.layer_ids) if head.layer_ids else None,
        "transformer_layer_config": layer,
    }

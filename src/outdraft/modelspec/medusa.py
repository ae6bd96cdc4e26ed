"""MedusaSpec: heads that each guess one of the next tokens from the target's last hidden state.

No attention and no cache: a head is a few square matrices and an output matrix. Read for planning,
and not run by this project's engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outdraft.errors import PairingError
from outdraft.modelspec.spec import DecoderSpec, ModelSpec, check_count
from outdraft.modelspec.tensors import TensorEntry, stored_sizes

_MAX_CONTEXT = 1 << 20  # none of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class MedusaSpec(DecoderSpec):
    num_guesses: int  # heads: tokens of a round, at most
    num_blocks: int = 1  # square matrices of each head
    has_bias: bool = False
    shares_output: bool = False  # one output matrix for all heads

    def __post_init__(self) -> None:
        DecoderSpec.__post_init__(self)
        check_count("medusa heads", self.num_guesses, 1 << 10)
        check_count("medusa layers", self.num_blocks, 1 << 10)

    def kv_values_per_layer(self, ranks: int = 1) -> int:
        return 0


def is_medusa(config: Mapping[str, Any]) -> bool:
    """By its model_type; first checkpoints have none, but keys of their own."""
    return config.get("model_type") == "medusa" or "medusa_num_heads" in config


def medusa_from_config(config: Mapping[str, Any], entries: Sequence[TensorEntry]) -> MedusaSpec:
    hidden = int(config["hidden_size"])
    return MedusaSpec(
        family="medusa",
        num_layers=1,
        hidden_size=hidden,
        intermediate_size=hidden,
        num_heads=1,
        num_kv_heads=1,
        head_dim=2,
        vocab_size=int(config["vocab_size"]),
        max_context=_MAX_CONTEXT,
        num_guesses=int(config.get("num_heads") or config["medusa_num_heads"]),
        num_blocks=int(config.get("num_hidden_layers") or config.get("medusa_num_layers") or 1),
        has_bias=bool(config.get("medusa_fc_bias")),
        shares_output=bool(config.get("original_lm_head")),
        **stored_sizes(entries),
    )


def check_medusa_fits(heads: MedusaSpec, target: ModelSpec, *, name: str, target_name: str) -> None:
    """Raises PairingError unless the heads were made for a target of this shape."""
    sizes = {
        "a hidden size": (heads.hidden_size, target.hidden_size),
        "a vocabulary": (heads.vocab_size, target.vocab_size),
    }
    for what, (ours, theirs) in sizes.items():
        if ours != theirs:
            raise PairingError(
                f"the Medusa heads {name} do not fit target {target_name}: they have {what} of "
                f"{ours}, the target's is {theirs}; choose heads that were trained on this target"
            )

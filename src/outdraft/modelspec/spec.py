"""ModelSpec: the shape of a decoder-only transformer, and nothing about its weights' values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outdraft.errors import UnsupportedArchitectureError
from outdraft.modelspec.rope import RopeScaling

# SmolLM2 is a llama. Everything that differs between families is a field of
# ModelSpec, so code that runs models should read the fields, not the family.
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model's architecture, and the size of its files."""

    family: str  # one of FAMILIES
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # rows of the embedding, which may be more than the tokenizer uses
    max_context: int
    rms_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tie_embeddings: bool
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    rope_layers: tuple[bool, ...]  # per layer: are positions rotated in (SmolLM3 skips some)
    windows: tuple[int | None, ...]  # per layer: how far back it sees, None for all the way
    eos_ids: tuple[int, ...]
    bos_id: int | None
    num_parameters: int  # tied embeddings counted once
    bytes_by_dtype: Mapping[str, int] = field(hash=False)  # what the tensors take in the files

    def __post_init__(self) -> None:
        counts = ("num_layers", "hidden_size", "intermediate_size", "num_heads", "num_kv_heads")
        for name in (*counts, "head_dim", "vocab_size", "max_context"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}")
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_heads} heads over {self.num_kv_heads} kv heads of {self.head_dim}"
            )

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors as they lie in the files."""
        return sum(self.bytes_by_dtype.values())

    def kv_bytes_per_token(self, bytes_per_value: int = 2) -> int:
        """KV cache bytes that one token takes over all layers (keys and values)."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_value


def check_family(name: str, source: object) -> str:
    """Return ``name`` when it is supported, else say which families are."""
    if name not in FAMILIES:
        raise UnsupportedArchitectureError(
            f"unsupported architecture {name!r} in {source}; supported: {', '.join(FAMILIES)}"
        )
    return name

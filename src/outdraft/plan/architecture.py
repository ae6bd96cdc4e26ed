"""Architecture: what decides a model's bytes, for every family a plan knows.

Wider than ModelSpec, which holds what our own engine runs: experts, latent attention, attention
sinks and draft heads are here too, and nothing that only a forward pass needs (rope, eps).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from outdraft.errors import UnsupportedArchitectureError

# As config.json calls them (model_type).
FAMILIES = (
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v3",
    "smollm3",
)

# Beyond any model; a file that says more is damaged.
MAX_LAYERS = 4096
_MAX = 1 << 32


def check_count(name: str, value: int, most: int = _MAX, *, least: int = 1) -> int:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}")
    return value


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the MLP."""

    count: int  # routed, per layer
    per_token: int
    intermediate_size: int  # of one expert
    shared: int = 0  # experts that every token passes
    dense_layers: int = 0  # layers at the bottom that keep a plain MLP
    has_bias: bool = False
    has_router_bias: bool = False

    def __post_init__(self) -> None:
        check_count("experts", self.count, 1 << 16)
        check_count("experts per token", self.per_token, self.count)
        check_count("an expert's intermediate_size", self.intermediate_size)
        check_count("shared experts", self.shared, 1 << 16, least=0)
        check_count("dense layers", self.dense_layers, MAX_LAYERS, least=0)


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention: one compressed vector per token instead of keys and values."""

    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    v_dim: int

    def __post_init__(self) -> None:
        for name in ("kv_rank", "nope_dim", "rope_dim", "v_dim"):
            check_count(name, getattr(self, name))
        if self.q_rank is not None:
            check_count("q_rank", self.q_rank)


@dataclass(frozen=True, slots=True)
class Head:
    """An EAGLE head: a small decoder that reads the target's hidden states."""

    kind: str  # eagle or eagle3
    target_hidden_size: int
    taps: tuple[int, ...] | None  # layers of the target it reads; None: the engine's default
    draft_vocab_size: int
    has_embedding: bool = False  # of its own; else the target's is shared

    def __post_init__(self) -> None:
        check_count("target_hidden_size", self.target_hidden_size)
        check_count("draft_vocab_size", self.draft_vocab_size)

    @property
    def num_taps(self) -> int:
        if self.kind == "eagle":
            return 1
        return 3 if self.taps is None else len(self.taps)

    def taps_of(self, num_layers: int) -> tuple[int, ...]:
        """The tapped layers of a target; without any named, engines take a low, a middle and a
        high one."""
        if self.kind == "eagle":
            return ()
        return self.taps or (2, num_layers // 2, num_layers - 3)


@dataclass(frozen=True, slots=True)
class Architecture:
    family: str  # one of FAMILIES
    num_layers: int
    hidden_size: int
    intermediate_size: int  # of a plain MLP
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # rows of the embedding, padding included
    max_context: int
    tie_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    has_sinks: bool = False  # one learned value per head
    experts: Experts | None = None
    latent: Latent | None = None
    windows: tuple[int | None, ...] = field(default=())  # per layer; empty: all see everything
    head: Head | None = None

    def __post_init__(self) -> None:
        check_count("num_layers", self.num_layers, MAX_LAYERS)
        check_count("num_heads", self.num_heads, 1 << 16)
        for name in ("hidden_size", "intermediate_size", "num_kv_heads", "head_dim"):
            check_count(name, getattr(self, name))
        check_count("vocab_size", self.vocab_size)
        check_count("max_context", self.max_context)
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_heads} heads over {self.num_kv_heads} kv heads")
        if self.experts is not None:
            check_count("dense layers", self.experts.dense_layers, self.num_layers, least=0)
        for window in self.windows:
            if window is not None:
                check_count("a window", window)

    @property
    def layer_windows(self) -> tuple[int | None, ...]:
        return self.windows or (None,) * self.num_layers


def check_family(name: str, source: object) -> str:
    if name not in FAMILIES:
        raise UnsupportedArchitectureError(
            f"unsupported architecture {name!r} in {source}; a plan knows: {', '.join(FAMILIES)}"
        )
    return name

"""ModelSpec: the architecture of a decoder-only transformer, as far as files' headers tell it.

Wide enough to plan every family in FAMILIES. What differs between families is a field, so code that
sizes or runs models reads the fields, not the family.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

from outdraft.errors import UnsupportedArchitectureError

# As config.json names them (model_type). SmolLM2 is a llama.
RUNNABLE_FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")  # by this project's engine
PLANNED_FAMILIES = ("mixtral", "qwen3_moe", "gpt_oss", "deepseek_v3")
FAMILIES = RUNNABLE_FAMILIES + PLANNED_FAMILIES

# Beyond any model; a file that says more is damaged.
MAX_LAYERS = 4096
_MAX_COUNT = 1 << 32


def check_count(name: str, value: int, most: int = _MAX_COUNT, *, least: int = 1) -> int:
    if not least <= value <= most:
        raise ValueError(f"{name} is {value}")
    return value


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How a long-context model stretches the slow frequencies of its rotary embedding.

    - ``linear``: every frequency is divided by one factor;
    - ``llama3``: slow pairs divided, fast pairs kept, a smooth ramp between;
    - ``factors``: one explicit divisor per pair (how GGUF stores the llama3 rule).
    """

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0  # llama3: wavelengths over original_context/this are divided
    high_freq_factor: float = 4.0  # llama3: wavelengths under original_context/this are kept
    original_context: int = 8192
    factors: tuple[float, ...] = ()  # factors: one divisor for each pair


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
        for name, value in asdict(self).items():
            check_count(name, 1 if value is None else value)


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """What models and heads have in common: decoder layers, and the size of the files."""

    family: str  # one of FAMILIES
    num_layers: int
    hidden_size: int
    intermediate_size: int  # of a plain MLP
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int  # rows of the embedding, which may be more than the tokenizer uses
    max_context: int
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    rms_eps: float = 0.0  # 0: not given
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    windows: tuple[int | None, ...] = ()  # per layer: how far back it sees, None for everything
    # What no field expresses. It does not change sizes, but a forward pass without it is wrong.
    other_features: tuple[str, ...] = ()
    # How the files hold it, which is no part of the shape. Nothing without weights.
    num_parameters: int = field(default=0, compare=False)  # tied embeddings counted once
    parameter_bytes: int = field(default=0, compare=False)
    bytes_by_dtype: Mapping[str, int] = field(default_factory=dict, compare=False)  # all tensors

    def __post_init__(self) -> None:
        check_count("num_layers", self.num_layers, MAX_LAYERS)
        check_count("num_heads", self.num_heads, 1 << 16)
        sizes = ("hidden_size", "intermediate_size", "num_kv_heads", "head_dim", "vocab_size")
        for name in (*sizes, "max_context"):
            check_count(name, getattr(self, name))
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ValueError(
                f"{self.num_heads} heads over {self.num_kv_heads} kv heads of {self.head_dim}"
            )
        object.__setattr__(self, "windows", self.windows or (None,) * self.num_layers)
        for window in self.windows:
            check_count("a window", 1 if window is None else window)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors in the files."""
        return sum(self.bytes_by_dtype.values())

    def local_kv_heads(self, ranks: int) -> int:
        """KV heads on one of `ranks` devices: at least one, even if others keep the same one."""
        return max(1, self.num_kv_heads // ranks)

    def kv_values_per_layer(self, ranks: int = 1) -> int:
        """Numbers that one token adds to one layer's KV cache on one of `ranks` devices."""
        return 2 * self.local_kv_heads(ranks) * self.head_dim

    def kv_bytes_per_token(self, bytes_per_value: int = 2, ranks: int = 1) -> int:
        """KV cache bytes of one token over all layers, windows left aside."""
        return self.num_layers * self.kv_values_per_layer(ranks) * bytes_per_value


@dataclass(frozen=True, slots=True)
class ModelSpec(DecoderSpec):
    """A whole model: decoder layers between an embedding and an output matrix."""

    tie_embeddings: bool = False
    has_sinks: bool = False  # one learned attention value per head
    experts: Experts | None = None
    latent: Latent | None = None
    mtp_layers: int = 0  # for multi-token prediction, which the files hold beside the model
    rope_layers: tuple[bool, ...] = ()  # per layer: are positions rotated in (SmolLM3 skips some)
    quantization: str | None = None  # of a folder whose weights are packed: who packed them
    eos_ids: tuple[int, ...] = ()
    bos_id: int | None = None

    def __post_init__(self) -> None:
        DecoderSpec.__post_init__(self)  # super() without arguments fails in a class with slots
        object.__setattr__(self, "rope_layers", self.rope_layers or (True,) * self.num_layers)
        if self.experts is not None:
            check_count("dense layers", self.experts.dense_layers, self.num_layers, least=0)

    def kv_values_per_layer(self, ranks: int = 1) -> int:
        if self.latent is None:
            return DecoderSpec.kv_values_per_layer(self, ranks)
        return self.latent.kv_rank + self.latent.rope_dim  # whole on every device


def check_family(name: str, source: object) -> str:
    """Return ``name`` if it is one of FAMILIES, else raise an error that lists them."""
    if name not in FAMILIES:
        raise UnsupportedArchitectureError(
            f"unsupported architecture {name!r} in {source}; supported: "
            f"{', '.join(RUNNABLE_FAMILIES)}; plan also knows: {', '.join(PLANNED_FAMILIES)}"
        )
    return name

"""Every exact formula of a plan: parameters, weight bytes, KV bytes. Pure.

A model is a list of `Weight`s; parameters, bytes in any quantization and bytes of one
tensor-parallel rank are sums over that list. What can only be estimated is in `reserve.py`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from outdraft.errors import OptionError, unknown_choice
from outdraft.modelspec import AnySpec, HeadSpec, MedusaSpec, ModelSpec, MtpSpec
from outdraft.modelspec.spec import DecoderSpec, Experts, Latent

PARTS = ("embedding", "head", "attention", "mlp", "experts", "router", "norms")
KV_DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4, "fp8": 1}  # bytes of one value

# How a weight is divided over tensor-parallel ranks.
Split = Literal["ranks", "kv_heads", "whole"]


@dataclass(frozen=True, slots=True)
class Weight:
    part: str  # one of PARTS
    outputs: int  # rows; a vector has one input
    inputs: int = 1
    count: int = 1  # how many alike
    split: Split = "ranks"
    is_quantized: bool = True  # by schemes that quantize

    @property
    def values(self) -> int:
        return self.outputs * self.inputs * self.count


@dataclass(frozen=True, slots=True)
class Scheme:
    """How many bits a quantized matrix takes, scales included."""

    bits: int
    group: int | None = None  # values that share a scale; None: a whole row
    scale_bits: int = 0  # per group, zero points included
    parts: tuple[str, ...] = ("attention", "mlp", "experts")  # the others stay in 16 bits

    def bits_of(self, weight: Weight) -> int:
        if not weight.is_quantized or weight.part not in self.parts:
            return 16 * weight.values
        groups = 1 if self.group is None else -(-weight.inputs // self.group)
        scales = weight.outputs * weight.count * groups
        return self.bits * weight.values + self.scale_bits * scales


SCHEMES: Mapping[str, Scheme] = {
    "bf16": Scheme(16),
    "fp8": Scheme(8, scale_bits=32),  # one float32 per output row
    "int8": Scheme(8, scale_bits=32),
    "int4": Scheme(4, group=128, scale_bits=20),  # a 16-bit scale and a 4-bit zero point
    "mxfp4": Scheme(4, group=32, scale_bits=8, parts=("experts",)),  # as gpt-oss is published
}
QUANTIZATIONS = ("bf16", "fp8", "int8", "int4")  # every mix of these is computed


def weights(model: AnySpec) -> Iterator[Weight]:
    """Every weight of a model or head, the shared ones once."""
    hidden, layers = model.hidden_size, model.num_layers
    if isinstance(model, HeadSpec):
        yield from _head_weights(model)
    elif isinstance(model, MedusaSpec):
        yield from _medusa_weights(model)
    elif isinstance(model, MtpSpec):
        yield from _layers(model)
        yield Weight("attention", hidden, 2 * hidden, layers, split="whole", is_quantized=False)
        yield _norm(hidden, 5 * layers)  # of both inputs and of the output too
    else:
        yield Weight("embedding", model.vocab_size, hidden, is_quantized=False)
        if not model.tie_embeddings:
            yield Weight("head", model.vocab_size, hidden, is_quantized=False)
        yield from _layers(model)
        yield _norm(hidden, 2 * layers + 1)


def _layers(model: ModelSpec) -> Iterator[Weight]:
    """Without the norms before attention and MLP."""
    hidden, layers = model.hidden_size, model.num_layers
    if model.latent is None:
        yield from _attention(model)
        if model.has_sinks:
            yield _vector("attention", model.num_heads, layers)
    else:
        yield from _latent_attention(model, model.latent)
    dense = layers if model.experts is None else model.experts.dense_layers
    yield from _mlp("mlp", hidden, model.intermediate_size, dense, has_bias=model.mlp_bias)
    if model.experts is not None:
        yield from _experts(model, model.experts)


def _vector(part: str, size: int, count: int, split: Split = "ranks") -> Weight:
    return Weight(part, size, count=count, split=split, is_quantized=False)


def _norm(size: int, count: int) -> Weight:
    return _vector("norms", size, count, split="whole")


def _attention(model: DecoderSpec) -> Iterator[Weight]:
    layers, hidden = model.num_layers, model.hidden_size
    q, kv = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    yield Weight("attention", q, hidden, layers)
    yield Weight("attention", kv, hidden, 2 * layers, split="kv_heads")
    yield Weight("attention", hidden, q, layers)
    if model.qkv_bias:
        yield _vector("attention", q, layers)
        yield _vector("attention", kv, 2 * layers, split="kv_heads")
    if model.o_bias:
        yield _vector("attention", hidden, layers, split="whole")
    if model.qk_norm:
        yield _norm(model.head_dim, 2 * layers)


def _latent_attention(model: ModelSpec, latent: Latent) -> Iterator[Weight]:
    layers, hidden, heads = model.num_layers, model.hidden_size, model.num_heads
    q = heads * (latent.nope_dim + latent.rope_dim)
    if latent.q_rank is None:
        yield Weight("attention", q, hidden, layers)
    else:
        yield Weight("attention", latent.q_rank, hidden, layers, split="whole")
        yield _norm(latent.q_rank, layers)
        yield Weight("attention", q, latent.q_rank, layers)
    yield Weight("attention", latent.kv_rank + latent.rope_dim, hidden, layers, split="whole")
    yield _norm(latent.kv_rank, layers)
    yield Weight("attention", heads * (latent.nope_dim + latent.v_dim), latent.kv_rank, layers)
    yield Weight("attention", hidden, heads * latent.v_dim, layers)


def _mlp(part: str, hidden: int, inner: int, count: int, *, has_bias: bool) -> Iterator[Weight]:
    yield Weight(part, inner, hidden, 2 * count)
    yield Weight(part, hidden, inner, count)
    if has_bias:
        yield _vector(part, inner, 2 * count)
        yield _vector(part, hidden, count, split="whole")


def _experts(model: ModelSpec, experts: Experts) -> Iterator[Weight]:
    hidden, inner = model.hidden_size, experts.intermediate_size
    layers = model.num_layers - experts.dense_layers
    routed, shared = experts.count * layers, experts.shared * layers
    yield from _mlp("experts", hidden, inner, routed, has_bias=experts.has_bias)
    yield from _mlp("mlp", hidden, inner, shared, has_bias=False)
    yield Weight("router", experts.count, hidden, layers, split="whole", is_quantized=False)
    if experts.has_router_bias:
        yield _vector("router", experts.count, layers, split="whole")


def _head_weights(head: HeadSpec) -> Iterator[Weight]:
    """EAGLE-3 reads the embedding and the fused states side by side; EAGLE fuses them first."""
    hidden = head.hidden_size
    if head.has_embedding:
        yield Weight("embedding", head.vocab_size, hidden, is_quantized=False)
    is_eagle3 = head.kind == "eagle3"
    fused = head.num_taps * head.target_hidden_size + (0 if is_eagle3 else hidden)
    yield Weight("attention", hidden, fused, split="whole")
    yield from _attention(head)
    if is_eagle3:  # the first layer's q, k and v are twice as wide
        yield Weight("attention", head.num_heads * head.head_dim, hidden)
        kv = head.num_kv_heads * head.head_dim
        yield Weight("attention", kv, hidden, 2, split="kv_heads")
    width, layers = head.intermediate_size, head.num_layers
    yield from _mlp("mlp", hidden, width, layers, has_bias=head.mlp_bias)
    if is_eagle3:
        yield Weight("head", head.draft_vocab_size, hidden, is_quantized=False)
    yield _norm(hidden, 3 * layers + 1 if is_eagle3 else 2 * layers - 1)


def _medusa_weights(heads: MedusaSpec) -> Iterator[Weight]:
    hidden, blocks = heads.hidden_size, heads.num_guesses * heads.num_blocks
    yield Weight("mlp", hidden, hidden, blocks, split="whole")
    if heads.has_bias:
        yield _vector("mlp", hidden, blocks, split="whole")
    outputs = 1 if heads.shares_output else heads.num_guesses
    yield Weight("head", heads.vocab_size, hidden, outputs, is_quantized=False)


def parameters_by_part(model: AnySpec) -> dict[str, int]:
    sums: Counter[str] = Counter()
    for weight in weights(model):
        sums[weight.part] += weight.values
    return {part: sums[part] for part in PARTS if sums[part]}


def num_parameters(model: AnySpec) -> int:
    return sum(weight.values for weight in weights(model))


def active_parameters(model: AnySpec) -> int:
    """Parameters that one token passes: all but those of experts it is not sent to."""
    if not isinstance(model, ModelSpec) or model.experts is None:
        return num_parameters(model)
    idle = model.experts.count - model.experts.per_token
    routed = parameters_by_part(model)["experts"]
    return num_parameters(model) - routed * idle // model.experts.count


def weight_bytes(model: AnySpec, quantization: str, ranks: int = 1) -> dict[str, int]:
    """Bytes by part on one of `ranks` devices."""
    if quantization not in SCHEMES:
        raise unknown_choice("quantization", quantization, [*SCHEMES, "files"])
    sums: Counter[str] = Counter()
    for weight in weights(model):
        bits = SCHEMES[quantization].bits_of(weight)
        if weight.split == "ranks":
            bits = -(-bits // ranks)
        elif weight.split == "kv_heads":
            bits = bits * model.local_kv_heads(ranks) // model.num_kv_heads
        sums[weight.part] += bits
    return {part: -(-sums[part] // 8) for part in PARTS if sums[part]}


def total_bytes(model: AnySpec, quantization: str, ranks: int = 1) -> int:
    return sum(weight_bytes(model, quantization, ranks).values())


def kv_bytes_of_sequence(
    model: AnySpec, num_tokens: int, kv_dtype: str, ranks: int = 1, *, chunk: int = 0
) -> int:
    """What a sequence takes; a layer with a window keeps that and the `chunk` being computed."""
    layer = model.kv_values_per_layer(ranks) * KV_DTYPES[kv_dtype]
    return sum(
        layer * (num_tokens if window is None else min(num_tokens, window - 1 + chunk))
        for window in model.windows
    )


def check_ranks(model: AnySpec, ranks: int, name: str) -> None:
    """Refuse what engines refuse: they divide whole attention heads."""
    if isinstance(model, MedusaSpec):
        return  # it has none
    heads, kv = model.num_heads, model.num_kv_heads
    fitting = [n for n in range(1, heads + 1) if heads % n == 0 and (kv % n == 0 or n % kv == 0)]
    if ranks not in fitting:
        raise OptionError(
            f"{name} has {heads} attention heads and {kv} KV heads, which do not divide over "
            f"{ranks} devices; use one of: {', '.join(map(str, fitting))}"
        )

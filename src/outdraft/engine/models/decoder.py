"""The transformer: Llama 2/3, Mistral, Qwen2/2.5, Qwen3 and SmolLM2/3 are one model.

They differ in a few properties of ModelSpec: biases, norms of queries and keys, which layers
rotate, which have a sliding window, whether the output matrix is the embedding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.models.attention import attend_batch
from outdraft.engine.models.batch import Batch
from outdraft.engine.models.elementwise import Rotary, rotate, silu
from outdraft.engine.models.embedding import AnyEmbedding, make_embedding
from outdraft.engine.models.linear import AnyProduct, make_product
from outdraft.engine.models.norm import Norm, widened
from outdraft.engine.models.packed import PackedProduct
from outdraft.engine.models.weights import Weights, read_shaped
from outdraft.modelspec import ModelSpec


@dataclass(frozen=True, slots=True)
class Layer:
    attention_norm: Norm
    qkv: AnyProduct
    qk_norm: Tensor | None  # (heads + kv_heads, head_dim)
    output: AnyProduct
    mlp_norm: Norm
    gate_up: AnyProduct
    down: AnyProduct
    rotates: bool
    window: int | None

    @property
    def products(self) -> tuple[AnyProduct, ...]:
        return (self.qkv, self.output, self.gate_up, self.down)


class Decoder:
    """Runs a Batch through every layer. Holds weights only: the cache is passed in."""

    def __init__(
        self,
        spec: ModelSpec,
        embedding: AnyEmbedding,
        layers: Sequence[Layer],
        norm: Norm,
        head: AnyProduct,
    ) -> None:
        self.spec = spec
        self.dtype = embedding.dtype
        self.device = embedding.device
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        # Fewest rows a step should have, see linear.STEADY_MIN_ROWS.
        self.min_rows = max(product.min_rows for product in self.products)
        self._rotary = Rotary(spec, self.device)

    @property
    def products(self) -> tuple[AnyProduct, ...]:
        return (self.head, *(each for layer in self.layers for each in layer.products))

    def forward(
        self, batch: Batch, cache: KVCache, taps: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Hidden states (T, hidden) before the last norm, and those entering layers `taps`.

        The embedding enters layer 0; the number of layers stands for what leaves the last one.
        Tapped states come in the order of layers.
        """
        spec = self.spec
        rotated, still = self._rotary(batch.positions), self._rotary.still
        num_qk = spec.num_heads + spec.num_kv_heads
        eps = spec.rms_eps
        widths = (spec.intermediate_size, spec.intermediate_size)
        tapped: list[Tensor] = []
        stream = widened(self.embedding.rows(batch.tokens), eps)
        x = stream.narrow(1, 0, spec.hidden_size)
        for index, layer in enumerate(self.layers):
            if index in taps:
                tapped.append(x.clone())
            qkv = layer.qkv(layer.attention_norm(x, stream))
            qkv = qkv.view(-1, num_qk + spec.num_kv_heads, spec.head_dim)
            qk, values = qkv.split_with_sizes((num_qk, spec.num_kv_heads), 1)
            if layer.qk_norm is not None:
                qk = F.rms_norm(qk, (spec.head_dim,), None, eps) * layer.qk_norm
            qk = rotate(qk, rotated if layer.rotates else still)
            queries, keys = qk.split_with_sizes((spec.num_heads, spec.num_kv_heads), 1)
            cache.write(index, batch.slots, keys, values)
            attended = attend_batch(
                queries, cache.keys[index], cache.values[index], batch, layer.window
            )
            x += layer.output(attended)
            gate_up = layer.gate_up(layer.mlp_norm(x, stream))
            gate, up = gate_up.split_with_sizes(widths, 1)
            x += layer.down(silu(gate).mul_(up))
        if len(self.layers) in taps:
            tapped.append(x.clone())
        return x, tapped

    def logits(self, hidden: Tensor) -> Tensor:
        """(R, hidden) → (R, vocab) in float32."""
        normed = self.norm(hidden, widened(hidden, self.spec.rms_eps))
        return self.head(normed).float()


def load_decoder(
    spec: ModelSpec,
    weights: Weights,
    *,
    dtype: torch.dtype,
    device: torch.device,
    quantization: str = "none",
    on_layer: Callable[[int, int], None] = lambda done, total: None,
) -> Decoder:
    """Builds the model layer by layer, so that never more than one is held twice."""
    hidden, dim = spec.hidden_size, spec.head_dim
    queries, kv = spec.num_heads * dim, spec.num_kv_heads * dim
    qkv = (("q", queries), ("k", kv), ("v", kv))

    def tensor(name: str, *shape: int) -> Tensor:
        return read_shaped(weights, name, shape).to(device=device, dtype=dtype)

    def norm(name: str) -> Norm:
        return Norm(tensor(name, hidden), spec.rms_eps)

    def product(outs: Mapping[str, int], inputs: int, *, bias: bool) -> AnyProduct:
        """Several projections of one input as a single product."""
        biases = [tensor(f"{name}.bias", out) for name, out in outs.items()] if bias else []
        return make_product(
            torch.cat([tensor(f"{name}.weight", out, inputs) for name, out in outs.items()]),
            torch.cat(biases) if biases else None,
            quantization,
        )

    def layer(index: int) -> Layer:
        prefix = f"model.layers.{index}"
        attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
        width = spec.intermediate_size
        qk_norm = None
        if spec.qk_norm:
            query_norm = tensor(f"{attention}.q_norm.weight", dim).expand(spec.num_heads, -1)
            key_norm = tensor(f"{attention}.k_norm.weight", dim).expand(spec.num_kv_heads, -1)
            qk_norm = torch.cat([query_norm, key_norm])
        return Layer(
            attention_norm=norm(f"{prefix}.input_layernorm.weight"),
            qkv=product(
                {f"{attention}.{name}_proj": out for name, out in qkv}, hidden, bias=spec.qkv_bias
            ),
            qk_norm=qk_norm,
            output=product({f"{attention}.o_proj": hidden}, queries, bias=spec.o_bias),
            mlp_norm=norm(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=product(
                {f"{mlp}.gate_proj": width, f"{mlp}.up_proj": width}, hidden, bias=spec.mlp_bias
            ),
            down=product({f"{mlp}.down_proj": hidden}, width, bias=spec.mlp_bias),
            rotates=spec.rope_layers[index],
            window=spec.windows[index],
        )

    def ends() -> tuple[AnyEmbedding, AnyProduct]:
        """What tokens come in by, and what they go out by. Often it is one matrix."""
        # The head decides every token: at 4 bits it would cost more acceptance than it saves.
        kind = "int8" if quantization == "int4" else quantization
        matrix = tensor("model.embed_tokens.weight", spec.vocab_size, hidden)
        if not spec.tie_embeddings:
            embedding = make_embedding(matrix, kind)
            matrix = tensor("lm_head.weight", spec.vocab_size, hidden)
            return embedding, make_product(matrix, None, kind)
        head = make_product(matrix, None, kind)
        return head if isinstance(head, PackedProduct) else make_embedding(matrix, kind), head

    embedding, head = ends()
    layers = []
    for index in range(spec.num_layers):
        layers.append(layer(index))
        on_layer(index + 1, spec.num_layers)
    return Decoder(spec, embedding, layers, norm("model.norm.weight"), head)

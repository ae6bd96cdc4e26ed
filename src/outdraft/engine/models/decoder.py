"""The transformer: Llama 2/3, Mistral, Qwen2/2.5, Qwen3 and SmolLM2/3 are one model.

They differ in a few facts that ModelSpec names: biases, normed queries and keys, which
layers rotate, which look back only so far, whether the head is the embedding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.models.attention import attend
from outdraft.engine.models.batch import Batch
from outdraft.engine.models.elementwise import Rotary, rotate, silu
from outdraft.engine.models.linear import AnyProduct, make_product
from outdraft.engine.models.norm import Norm, widened
from outdraft.engine.models.weights import Weights
from outdraft.errors import CorruptFileError
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


class Decoder:
    """Runs a Batch through every layer. Holds weights only: the cache is passed in."""

    def __init__(
        self,
        spec: ModelSpec,
        embedding: Tensor,
        layers: Sequence[Layer],
        norm: Norm,
        head: AnyProduct,
    ) -> None:
        self.spec = spec
        self.dtype = embedding.dtype
        self.device = embedding.device
        self._embedding = embedding  # (vocab, hidden)
        self._layers = layers
        self._norm = norm
        self._head = head
        # Fewest rows a step should have, see linear.PACKED_MIN_ROWS.
        self.min_rows = max(head.min_rows, *(layer.qkv.min_rows for layer in layers))
        self._rotary = Rotary(spec, self.device)

    @property
    def embedding(self) -> Tensor:
        return self._embedding

    def forward(
        self, batch: Batch, cache: KVCache, taps: Sequence[int] = ()
    ) -> tuple[Tensor, list[Tensor]]:
        """Hidden states (T, hidden) before the last norm, and those entering layers `taps`.

        Layer 0 is entered by the embedding; entering one more than there are means leaving the
        last. What is tapped comes in order of layers.
        """
        spec = self.spec
        rotated, still = self._rotary(batch.positions), self._rotary.still
        num_qk = spec.num_heads + spec.num_kv_heads
        eps = spec.rms_eps
        widths = (spec.intermediate_size, spec.intermediate_size)
        tapped: list[Tensor] = []
        stream = widened(F.embedding(batch.tokens, self._embedding), eps)
        x = stream.narrow(1, 0, spec.hidden_size)
        for index, layer in enumerate(self._layers):
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
            mixed = [
                attend(queries, cache.keys[index], cache.values[index], group, layer.window)
                for group in batch.groups
            ]
            attended = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
            if batch.merge is not None:
                attended = attended.index_select(0, batch.merge)
            elif len(attended) > len(x):  # a single row, repeated
                attended = attended.narrow(0, 0, len(x))
            x += layer.output(attended)
            gate_up = layer.gate_up(layer.mlp_norm(x, stream))
            gate, up = gate_up.split_with_sizes(widths, 1)
            x += layer.down(silu(gate).mul_(up))
        if len(self._layers) in taps:
            tapped.append(x.clone())
        return x, tapped

    def logits(self, hidden: Tensor) -> Tensor:
        """(R, hidden) → (R, vocab) in float32."""
        normed = self._norm(hidden, widened(hidden, self.spec.rms_eps))
        return self._head(normed).float()


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

    def tensor(name: str, *shape: int) -> Tensor:
        found = weights.get(name)
        if found.shape != shape:
            raise CorruptFileError(
                f"tensor {name} has shape {tuple(found.shape)} where the model's own "
                f"description makes it {shape}; the files do not belong together"
            )
        return found.to(device=device, dtype=dtype)

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
            pairs = (("q", spec.num_heads), ("k", spec.num_kv_heads))
            qk_norm = torch.cat(
                [
                    tensor(f"{attention}.{name}_norm.weight", dim).expand(count, -1)
                    for name, count in pairs
                ]
            )
        return Layer(
            attention_norm=norm(f"{prefix}.input_layernorm.weight"),
            qkv=product(
                {
                    f"{attention}.q_proj": queries,
                    f"{attention}.k_proj": kv,
                    f"{attention}.v_proj": kv,
                },
                hidden,
                bias=spec.qkv_bias,
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

    embedding = tensor("model.embed_tokens.weight", spec.vocab_size, hidden)
    layers = []
    for index in range(spec.num_layers):
        layers.append(layer(index))
        on_layer(index + 1, spec.num_layers)
    # The head decides every token: at 4 bits it would cost more acceptance than it saves.
    head = make_product(
        embedding if spec.tie_embeddings else tensor("lm_head.weight", spec.vocab_size, hidden),
        None,
        "int8" if quantization == "int4" else quantization,
    )
    return Decoder(spec, embedding, layers, norm("model.norm.weight"), head)

"""An EAGLE-3 head: one layer over the target's hidden states (layout: docs/heads.md).

It computes a Batch as Decoder does, with one more input for each row: the target's fused features
one position before, or the head's own output for that position. Its cache has one layer.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.kv_cache import KVCache
from outdraft.engine.models.attention import attend_batch
from outdraft.engine.models.batch import Batch
from outdraft.engine.models.elementwise import Rotary, Rotation, rotate
from outdraft.engine.models.embedding import AnyEmbedding, make_embedding
from outdraft.engine.models.linear import AnyProduct, make_product
from outdraft.engine.models.norm import Norm, widened
from outdraft.engine.models.weights import Weights
from outdraft.errors import CorruptFileError
from outdraft.modelspec.head import COLUMNS, EMBEDDING, LM_HEAD, HeadSpec, canonical_name

# The first token of a text has no features before it: its entry in the cache is masked.
FIRST_KEY = 1


class Head:
    def __init__(
        self,
        spec: HeadSpec,
        *,
        embedding: AnyEmbedding,
        targets: Tensor,
        norms: dict[str, Norm],
        products: dict[str, AnyProduct],
    ) -> None:
        self.spec = spec
        self.dtype = embedding.dtype
        self.device = embedding.device
        self.targets = targets  # (D,) the target's id of every draft token
        self.embedding = embedding
        self.norms = norms
        self.parts = products
        self._token_norm, self._hidden_norm = norms["token"], norms["hidden"]
        self._mlp_norm, self._norm = norms["mlp"], norms["last"]
        self._fc, self._qkv, self._output = products["fc"], products["qkv"], products["output"]
        self._gate_up, self._down = products["gate_up"], products["down"]
        self._lm_head = products["lm_head"]
        # Fewest rows a step should have, see linear.STEADY_MIN_ROWS.
        self.min_rows = max(product.min_rows for product in products.values())
        self.rotation = Rotary(spec, self.device)

    @property
    def products(self) -> tuple[AnyProduct, ...]:
        return tuple(self.parts.values())

    def fuse(self, features: Tensor) -> Tensor:
        """(T, 3 * G) of the target's tapped states → (T, H)."""
        missing = self.min_rows - len(features)
        padded = F.pad(features, (0, 0, 0, missing)) if missing > 0 else features
        return self._fc(padded)[: len(features)]

    def forward(self, batch: Batch, hidden: Tensor, cache: KVCache, rotation: Rotation) -> Tensor:
        """hidden (T, H), one for every row of the batch → the layer's output (T, H)."""
        spec = self.spec
        num_qk = spec.num_heads + spec.num_kv_heads
        eps = spec.rms_eps
        tokens = self.embedding.rows(batch.tokens)
        tokens = self._token_norm(tokens, widened(tokens, eps))
        normed = self._hidden_norm(hidden, widened(hidden, eps))
        qkv = self._qkv(torch.cat([tokens, normed], 1))
        qkv = qkv.view(-1, num_qk + spec.num_kv_heads, spec.head_dim)
        qk, values = qkv.split_with_sizes((num_qk, spec.num_kv_heads), 1)
        qk = rotate(qk, rotation)
        queries, keys = qk.split_with_sizes((spec.num_heads, spec.num_kv_heads), 1)
        cache.write(0, batch.slots, keys, values)
        attended = attend_batch(queries, cache.keys[0], cache.values[0], batch, None)
        x = self._output(attended) + (normed if spec.norm_before_residual else hidden)
        gate_up = self._gate_up(self._mlp_norm(x, widened(x, eps)))
        gate, up = gate_up.split_with_sizes((spec.intermediate_size, spec.intermediate_size), 1)
        return x.add_(self._down(F.silu(gate).mul_(up)))

    def logits(self, hidden: Tensor) -> Tensor:
        """(R, H) → (R, D) in float32, over the draft vocabulary."""
        normed = self._norm(hidden, widened(hidden, self.spec.rms_eps))
        return self._lm_head(normed).float()


def load_head(
    spec: HeadSpec, weights: Weights, embedding: AnyEmbedding, *, quantization: str = "none"
) -> Head:
    """`embedding` is the target's: it says where and in which dtype the head computes."""
    device, dtype = embedding.device, embedding.dtype
    stored = {canonical_name(name): name for name in weights.names()}

    def tensor(name: str) -> Tensor:
        if name == LM_HEAD:
            return read_lm_head(weights, targets, embedding.rows).to(dtype)
        return weights.get(stored[name]).to(device=device, dtype=dtype)

    def norm(name: str) -> Norm:
        return Norm(tensor(f"{name}.weight"), spec.rms_eps)

    def product(names: Sequence[str], quantization: str = quantization) -> AnyProduct:
        """Several projections of one input as a single product."""
        weight = torch.cat([tensor(f"{name}.weight") for name in names])
        return make_product(weight, None, quantization)

    # As in a decoder: 4 bits would cost more acceptance than they save.
    kind = "int8" if quantization == "int4" else quantization
    targets = torch.arange(spec.draft_vocab_size)
    if "d2t" in stored:
        targets += weights.get(stored["d2t"]).long()
    if not 0 <= int(targets.min()) <= int(targets.max()) < spec.vocab_size:
        raise CorruptFileError(
            f"the head's d2t leads to token ids {int(targets.min())} to {int(targets.max())}, "
            f"outside the vocabulary of {spec.vocab_size}"
        )
    if len(targets.unique()) != len(targets):
        raise CorruptFileError("the head's d2t leads two draft tokens to one token of the target")
    targets = targets.to(device)
    attention, mlp = "layers.0.self_attn", "layers.0.mlp"
    return Head(
        spec,
        embedding=make_embedding(tensor(EMBEDDING), kind) if spec.has_embedding else embedding,
        targets=targets,
        norms={
            "token": norm("layers.0.input_layernorm"),
            "hidden": norm("layers.0.hidden_norm"),
            "mlp": norm("layers.0.post_attention_layernorm"),
            "last": norm("norm"),
        },
        products={
            "fc": product(["fc"]),
            "qkv": product([f"{attention}.{name}_proj" for name in "qkv"]),
            "output": product([f"{attention}.o_proj"]),
            "gate_up": product([f"{mlp}.gate_proj", f"{mlp}.up_proj"]),
            "down": product([f"{mlp}.down_proj"]),
            "lm_head": product(["lm_head"], kind),
        },
    )


def read_lm_head(weights: Weights, targets: Tensor, embed: Callable[[Tensor], Tensor]) -> Tensor:
    """(D, H) float32, where `targets` are, the draft vocabulary's ids. `embed`: the target's
    embedding of ids, which a stored difference is added to."""
    stored = {canonical_name(name): name for name in weights.names()}
    matrix = weights.get(stored[LM_HEAD]).to(targets.device, torch.float32)
    if COLUMNS not in stored:
        return matrix
    columns = weights.get(stored[COLUMNS]).to(matrix)
    return matrix + embed(targets).float() * columns

"""A decoder in plain torch, whole batches of sequences at a time: what is trained, and what trains.

The engine's own decoder is made for exact text over a paged cache. Here the same mathematics
serves two other ends: gradients, and writing a thousand texts at once. Parameters have the names
of Hugging Face's files, so a state dict is a model's weights as they are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.engine.models.weights import open_weights
from outdraft.errors import CorruptFileError
from outdraft.modelspec import ModelSpec, inverse_frequencies

Keep = Callable[[int, Tensor, Tensor], None]  # layer, keys and values (B, kv_heads, T, head_dim)
# queries, keys, values, places of the newest, window: see `attend.py`
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int | None], Tensor]


@dataclass(frozen=True, slots=True)
class Rotation:
    """Cosines and sines that broadcast to (B, heads, T, head_dim)."""

    cos: Tensor
    sin: Tensor

    def turn(self, x: Tensor) -> Tensor:
        """Turns element i with element i + head_dim/2."""
        low, high = x.chunk(2, -1)
        return (x * self.cos + torch.cat([-high, low], -1) * self.sin).to(x.dtype)


@dataclass(slots=True)
class Cache:
    """Keys and values of a fixed number of texts, each as long as it is."""

    keys: list[Tensor]  # by layer: (B, kv_heads, room, head_dim)
    values: list[Tensor]
    rows: Tensor  # (B,) 0, 1, 2 …
    at: Tensor  # (B,) where the next keys and values go
    length: int = 0  # only the first so many places are looked at
    attend: Attend | None = None  # looks at a text's own places, whatever `length` is


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self._eps)


class Attention(nn.Module):
    def __init__(self, spec: ModelSpec, index: int) -> None:
        super().__init__()
        hidden, dim = spec.hidden_size, spec.head_dim
        self._heads, self._kv_heads, self._dim = spec.num_heads, spec.num_kv_heads, dim
        self._rotates, self._window = spec.rope_layers[index], spec.windows[index]
        self._index = index
        self.q_proj = nn.Linear(hidden, spec.num_heads * dim, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(hidden, spec.num_kv_heads * dim, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(hidden, spec.num_kv_heads * dim, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(spec.num_heads * dim, hidden, bias=spec.o_bias)
        self.q_norm = Norm(dim, spec.rms_eps) if spec.qk_norm else None
        self.k_norm = Norm(dim, spec.rms_eps) if spec.qk_norm else None

    def forward(self, x: Tensor, by: Rotation, cache: Cache | None, keep: Keep | None) -> Tensor:
        b, t, _ = x.shape
        q = self.q_proj(x).view(b, t, self._heads, self._dim).transpose(1, 2)
        k = self.k_proj(x).view(b, t, self._kv_heads, self._dim).transpose(1, 2)
        v = self.v_proj(x).view(b, t, self._kv_heads, self._dim).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self._rotates:
            q, k = by.turn(q), by.turn(k)
        if cache is not None:
            mixed = self._over_cache(q, k, v, cache)
        else:
            if keep is not None:
                keep(self._index, k, v)
            mixed = self._over_itself(q, k, v)
        return self.o_proj(mixed.transpose(1, 2).reshape(b, t, -1))  # type: ignore[no-any-return]

    def _over_itself(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        t = q.shape[2]
        if self._window is None or self._window >= t:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        at = torch.arange(t, device=q.device)
        back = at[:, None] - at[None]
        mask = (back >= 0) & (back < self._window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    def _over_cache(self, q: Tensor, k: Tensor, v: Tensor, cache: Cache) -> Tensor:
        """One new token each: (B, heads, 1, D) over all that is kept of its text."""
        b, size = q.shape[0], cache.length
        keys, values = cache.keys[self._index], cache.values[self._index]
        keys[cache.rows, :, cache.at] = k[:, :, 0].to(keys.dtype)
        values[cache.rows, :, cache.at] = v[:, :, 0].to(values.dtype)
        if cache.attend is not None:
            return cache.attend(q.to(keys.dtype), keys, values, cache.at, self._window)
        folded = q.reshape(b, self._kv_heads, -1, self._dim) * self._dim**-0.5
        scores = folded @ keys[:, :, :size].transpose(2, 3)  # (B, kv, heads per kv, size)
        back = cache.at[:, None] - torch.arange(size, device=q.device)  # (B, size)
        unseen = back < 0
        if self._window is not None:
            unseen |= back >= self._window
        scores = scores.float().masked_fill(unseen[:, None, None], -torch.inf)
        mixed = scores.softmax(-1).to(values.dtype) @ values[:, :, :size]
        return mixed.reshape(b, self._heads, 1, self._dim)  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self, hidden: int, width: int, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=bias)
        self.up_proj = nn.Linear(hidden, width, bias=bias)
        self.down_proj = nn.Linear(width, hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        gated = F.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(gated)  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, spec: ModelSpec, index: int) -> None:
        super().__init__()
        self.input_layernorm = Norm(spec.hidden_size, spec.rms_eps)
        self.self_attn = Attention(spec, index)
        self.post_attention_layernorm = Norm(spec.hidden_size, spec.rms_eps)
        self.mlp = Mlp(spec.hidden_size, spec.intermediate_size, bias=spec.mlp_bias)

    def forward(self, x: Tensor, by: Rotation, cache: Cache | None, keep: Keep | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), by, cache, keep)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Body(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(Block(spec, index) for index in range(spec.num_layers))
        self.norm = Norm(spec.hidden_size, spec.rms_eps)


class Network(nn.Module):
    _frequencies: Tensor

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = Body(spec)
        self.lm_head = (
            None
            if spec.tie_embeddings
            else nn.Linear(spec.hidden_size, spec.vocab_size, bias=False)
        )
        frequencies = torch.as_tensor(inverse_frequencies(spec), dtype=torch.float32)
        self.register_buffer("_frequencies", frequencies, persistent=False)

    @property
    def embedding(self) -> Tensor:
        return self.model.embed_tokens.weight

    @property
    def head(self) -> Tensor:
        """(vocab, hidden)"""
        return self.embedding if self.lm_head is None else self.lm_head.weight

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def forward(
        self, tokens: Tensor, *, taps: Sequence[int] = (), keep: Keep | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """tokens (B, T) → states before the last norm (B, T, hidden), and those entering `taps`.

        Texts are padded behind their end: what stands there changes nothing before it.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self._through(tokens, self.rotation(positions[None]), None, keep, taps)

    def step(self, tokens: Tensor, cache: Cache) -> Tensor:
        """The next token of each text, (B,) → states (B, hidden); writes into the cache."""
        by = self.rotation(cache.at[:, None])
        return self._through(tokens[:, None], by, cache, None, ())[0][:, 0]

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self.model.norm(hidden), self.head)

    def rotation(self, positions: Tensor) -> Rotation:
        """positions (B, T), where B may be 1."""
        angles = positions[:, None, :, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)
        return Rotation(angles.cos(), angles.sin())

    def _through(
        self,
        tokens: Tensor,
        by: Rotation,
        cache: Cache | None,
        keep: Keep | None,
        taps: Sequence[int],
    ) -> tuple[Tensor, list[Tensor]]:
        x = self.model.embed_tokens(tokens)
        tapped = []
        for index, layer in enumerate(self.model.layers):
            if index in taps:
                tapped.append(x)
            x = layer(x, by, cache, keep)
        if len(self.model.layers) in taps:
            tapped.append(x)
        return x, tapped

    def make_cache(self, num_texts: int, room: int) -> Cache:
        shape = (num_texts, self.spec.num_kv_heads, room, self.spec.head_dim)
        dtype, device = self.embedding.dtype, self.device

        def empty() -> list[Tensor]:
            layers = range(self.spec.num_layers)
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in layers]

        rows = torch.arange(num_texts, device=device)
        attend = _attention_kernel(self.spec, dtype, device) if device.type == "cuda" else None
        return Cache(empty(), empty(), rows, torch.zeros_like(rows), attend=attend)


def _attention_kernel(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> Attend | None:
    """None where it cannot run: without Triton, or a compiler for it, or for heads of that size."""
    keys = torch.zeros(1, spec.num_kv_heads, 1, spec.head_dim, dtype=dtype, device=device)
    query = torch.zeros(1, spec.num_heads, 1, spec.head_dim, dtype=dtype, device=device)
    try:
        from outdraft.distill.attend import attend, can_attend

        if not can_attend(spec.head_dim):
            return None
        attend(query, keys, keys, torch.zeros(1, dtype=torch.long, device=device), None)
    except Exception:  # whatever it is, the plain form serves
        return None
    return attend


def load_network(
    path: Path, spec: ModelSpec, *, dtype: torch.dtype, device: torch.device
) -> Network:
    """A model's files as a network that is not trained."""
    with torch.device("meta"):
        network = Network(spec)
    weights = open_weights(path, num_heads=spec.num_heads, num_kv_heads=spec.num_kv_heads)
    state = {}
    for name, parameter in network.named_parameters():
        found = weights.get(name)
        if found.shape != parameter.shape:
            raise CorruptFileError(
                f"tensor {name} has shape {tuple(found.shape)} where the model's own description "
                f"makes it {tuple(parameter.shape)}; the files do not belong together"
            )
        state[name] = found.to(device=device, dtype=dtype)
    network.load_state_dict(state, assign=True)
    frequencies = torch.as_tensor(inverse_frequencies(spec), dtype=torch.float32)
    network._frequencies = frequencies.to(device)
    return network.requires_grad_(False).eval()

"""A decoder in plain torch for whole batches of texts: the target while it samples, and drafts.

The engine's decoder is made for exact text over a paged cache. Here the same mathematics serves two
other ends: gradients, and thousands of texts at once. Parameters have the names of Hugging Face's
files, so a state dict is a model's weights as they are saved.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outdraft.modelspec import ModelSpec, inverse_frequencies
from outdraft.modelspec.spec import DecoderSpec

INITIAL_STD = 0.02
Angles = tuple[Tensor, Tensor]  # cosines and sines that broadcast to (B, heads, T, head_dim)
Keep = Callable[[int, Tensor, Tensor], None]  # layer, keys and values (B, kv_heads, T, head_dim)
# queries, keys, values, position of the newest token, window: see `decode_attention.py`
Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int | None], Tensor]


class RotaryEmbedding(nn.Module):
    """Positions → angles. Nothing of it is saved."""

    _frequencies: Tensor

    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        frequencies = torch.as_tensor(inverse_frequencies(spec), dtype=torch.float32)
        self.register_buffer("_frequencies", frequencies, persistent=False)

    def forward(self, positions: Tensor) -> Angles:
        """positions (B, T), where B may be 1."""
        angles = positions[:, None, :, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)
        return angles.cos(), angles.sin()


def rotate_halves(x: Tensor, angles: Angles) -> Tensor:
    """Rotates element i together with element i + head_dim/2."""
    cos, sin = angles
    low, high = x.chunk(2, -1)
    return (x * cos + torch.cat([-high, low], -1) * sin).to(x.dtype)


def initialize_matrices(module: nn.Module) -> None:
    for parameter in module.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=INITIAL_STD)


@dataclass(slots=True)
class TextCache:
    """Keys and values of a fixed number of texts."""

    keys: Tensor  # (layers, B, kv_heads, room, head_dim)
    values: Tensor
    rows: Tensor  # (B,) 0, 1, 2 …
    at: Tensor  # (B,) position of the next keys and values
    length: int = 0  # positions that are read, of every text
    attend: Attend | None = None  # reads only a text's own positions, whatever `length` is


class RmsNorm(nn.RMSNorm):
    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.eps)


class AttentionProjections(nn.Module):
    def __init__(self, spec: DecoderSpec, input_size: int) -> None:
        super().__init__()
        queries, kv = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        self.q_proj = nn.Linear(input_size, queries, bias=spec.qkv_bias)
        self.k_proj = nn.Linear(input_size, kv, bias=spec.qkv_bias)
        self.v_proj = nn.Linear(input_size, kv, bias=spec.qkv_bias)
        self.o_proj = nn.Linear(queries, spec.hidden_size, bias=spec.o_bias)
        self._kv_heads, self._dim = spec.num_kv_heads, spec.head_dim

    def project(self, x: Tensor) -> list[Tensor]:
        """x (B, T, input_size) → queries, keys, values (B, heads, T, head_dim)"""
        projected = (to(x) for to in (self.q_proj, self.k_proj, self.v_proj))
        return [each.unflatten(-1, (-1, self._dim)).transpose(1, 2) for each in projected]


class Attention(AttentionProjections):
    def __init__(self, spec: ModelSpec, index: int) -> None:
        super().__init__(spec, spec.hidden_size)
        self._index, self._rotates = index, spec.rope_layers[index]
        self._window = spec.windows[index]
        self.q_norm = RmsNorm(spec.head_dim, spec.rms_eps) if spec.qk_norm else None
        self.k_norm = RmsNorm(spec.head_dim, spec.rms_eps) if spec.qk_norm else None

    def forward(
        self, x: Tensor, angles: Angles, cache: TextCache | None, keep: Keep | None
    ) -> Tensor:
        q, k, v = self.project(x)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self._rotates:
            q, k = rotate_halves(q, angles), rotate_halves(k, angles)
        if keep is not None:
            keep(self._index, k, v)
        mixed = self._over_itself(q, k, v) if cache is None else self._over_cache(q, k, v, cache)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def _over_itself(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        t = q.shape[2]
        if self._window is None or self._window >= t:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        at = torch.arange(t, device=q.device)
        back = at[:, None] - at[None]
        mask = (back >= 0) & (back < self._window)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    def _over_cache(self, q: Tensor, k: Tensor, v: Tensor, cache: TextCache) -> Tensor:
        """One new token of each text, (B, heads, 1, D), over the text's cached positions."""
        size = cache.length
        keys, values = cache.keys[self._index], cache.values[self._index]
        keys[cache.rows, :, cache.at] = k[:, :, 0].to(keys.dtype)
        values[cache.rows, :, cache.at] = v[:, :, 0].to(values.dtype)
        if cache.attend is not None:
            return cache.attend(q.to(keys.dtype), keys, values, cache.at, self._window)
        folded = q.reshape(len(q), self._kv_heads, -1, self._dim) * self._dim**-0.5
        scores = folded @ keys[:, :, :size].transpose(2, 3)  # (B, kv, heads per kv, size)
        back = cache.at[:, None] - torch.arange(size, device=q.device)  # (B, size)
        is_hidden = back < 0
        if self._window is not None:
            is_hidden |= back >= self._window
        scores = scores.float().masked_fill(is_hidden[:, None, None], -torch.inf)
        mixed = scores.softmax(-1).to(values.dtype) @ values[:, :, :size]
        return mixed.reshape(q.shape)  # type: ignore[no-any-return]


class Mlp(nn.Module):
    def __init__(self, spec: DecoderSpec) -> None:
        super().__init__()
        hidden, width = spec.hidden_size, spec.intermediate_size
        self.gate_proj = nn.Linear(hidden, width, bias=spec.mlp_bias)
        self.up_proj = nn.Linear(hidden, width, bias=spec.mlp_bias)
        self.down_proj = nn.Linear(width, hidden, bias=spec.mlp_bias)

    def forward(self, x: Tensor) -> Tensor:
        gated = F.silu(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(gated)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    def __init__(self, spec: ModelSpec, index: int) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(spec.hidden_size, spec.rms_eps)
        self.self_attn = Attention(spec, index)
        self.post_attention_layernorm = RmsNorm(spec.hidden_size, spec.rms_eps)
        self.mlp = Mlp(spec)

    def forward(
        self, x: Tensor, angles: Angles, cache: TextCache | None, keep: Keep | None
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), angles, cache, keep)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class DecoderLayers(nn.Module):
    """The embedding, the layers and the last norm: `model.` in the names of a file's tensors."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(spec.vocab_size, spec.hidden_size)
        self.layers = nn.ModuleList(DecoderLayer(spec, index) for index in range(spec.num_layers))
        self.norm = RmsNorm(spec.hidden_size, spec.rms_eps)


class Network(nn.Module):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.model = DecoderLayers(spec)
        sizes = (spec.hidden_size, spec.vocab_size)
        self.lm_head = None if spec.tie_embeddings else nn.Linear(*sizes, bias=False)
        self.rotary = RotaryEmbedding(spec)

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
        self,
        tokens: Tensor,
        *,
        taps: Sequence[int] = (),
        keep: Keep | None = None,
        cache: TextCache | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """tokens (B, T) → states before the last norm (B, T, hidden), and those entering `taps`.

        Texts are padded at their end, which changes nothing before it. With a cache, T is 1: the
        next token of each text, whose keys and values are written into the cache.
        """
        width = tokens.shape[1]
        positions = torch.arange(width, device=tokens.device) if cache is None else cache.at
        x, angles = self.model.embed_tokens(tokens), self.rotary(positions.view(-1, width))
        tapped = []
        for index, layer in enumerate(self.model.layers):
            if index in taps:
                tapped.append(x)
            x = layer(x, angles, cache, keep)
        if len(self.model.layers) in taps:
            tapped.append(x)
        return x, tapped

    def step(self, tokens: Tensor, cache: TextCache) -> Tensor:
        """The next token of each text, (B,) → states (B, hidden); writes into the cache."""
        return self(tokens[:, None], cache=cache)[0][:, 0]  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(self.model.norm(hidden), self.head)

    def make_cache(self, num_texts: int, room: int) -> TextCache:
        spec, dtype, device = self.spec, self.embedding.dtype, self.device
        shape = (spec.num_layers, num_texts, spec.num_kv_heads, room, spec.head_dim)
        keys = torch.zeros(shape, dtype=dtype, device=device)
        rows = torch.arange(num_texts, device=device)
        attend = _attention_kernel(spec, dtype, device) if device.type == "cuda" else None
        return TextCache(keys, keys.clone(), rows, torch.zeros_like(rows), attend=attend)


def _attention_kernel(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> Attend | None:
    """None where it cannot run: without Triton, without a compiler for it, for other head sizes."""
    keys = torch.zeros(1, spec.num_kv_heads, 1, spec.head_dim, dtype=dtype, device=device)
    query = torch.zeros(1, spec.num_heads, 1, spec.head_dim, dtype=dtype, device=device)
    try:
        # Triton is there only with a GPU build of torch.
        from outdraft.distill.decode_attention import decode_attention, supports_head_dim

        if not supports_head_dim(spec.head_dim):
            return None
        decode_attention(query, keys, keys, torch.zeros(1, dtype=torch.long, device=device), None)
    except Exception:  # whatever it is, the plain form serves
        return None
    return decode_attention

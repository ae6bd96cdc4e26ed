"""What a head computes, spelled out from modelspec/head.py's description: slow and plain."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from outdraft.engine.models.embedding import AnyEmbedding
from outdraft.modelspec import HeadSpec, inverse_frequencies, read_head
from outdraft.modelspec.head import canonical_name


class PlainHead:
    def __init__(self, folder: Path, embedding: AnyEmbedding) -> None:
        self.spec = read_head(folder)
        stored = load_file(folder / "model.safetensors")
        self.weights = {canonical_name(name): each for name, each in stored.items()}
        shared = embedding.rows(torch.arange(self.spec.vocab_size))
        self.embedding = self.weights.get("embed_tokens.weight", shared)
        ids = torch.arange(self.spec.draft_vocab_size)
        self.targets = ids + self.weights.get("d2t", torch.zeros_like(ids))

    def states(self, tokens: list[int], hidden: Tensor) -> Tensor:
        """Outputs (T, H) of a text's entries: each a token and the hidden state before it."""
        return plain_layer(self.spec, self.weights, self.embedding[tokens], hidden)

    def logits(self, states: Tensor) -> Tensor:
        normed = F.rms_norm(
            states, states.shape[-1:], self.weights["norm.weight"], self.spec.rms_eps
        )
        return normed @ self.weights["lm_head.weight"].T

    def greedy(self, tokens: list[int], features: Tensor, k: int) -> list[int]:
        """k drafts behind `tokens`, given the target's features (len(tokens) - 1, 3 * G)."""
        entries, hidden = list(tokens[1:]), features @ self.weights["fc.weight"].T
        drafts: list[int] = []
        for _ in range(k):
            states = self.states(entries, hidden)
            drafts.append(int(self.targets[self.logits(states[-1:]).argmax()]))
            entries.append(drafts[-1])
            hidden = torch.cat([hidden, states[-1:]])
        return drafts


def plain_layer(
    spec: HeadSpec, weights: Mapping[str, Tensor], embedded: Tensor, hidden: Tensor
) -> Tensor:
    def product(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"layers.0.{name}.weight"].T

    def norm(name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], weights[f"layers.0.{name}.weight"], spec.rms_eps)

    count = len(embedded)
    normed = norm("hidden_norm", hidden)
    both = torch.cat([norm("input_layernorm", embedded), normed], 1)
    angles = torch.outer(torch.arange(count), torch.as_tensor(inverse_frequencies(spec)))
    turn = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)

    def heads(name: str, turned: bool) -> Tensor:
        x = product(f"self_attn.{name}_proj", both).view(count, -1, spec.head_dim)
        if turned:
            low, high = x.chunk(2, -1)
            spun = torch.complex(low, high) * turn[:, None]
            x = torch.cat([spun.real, spun.imag], -1)
        return x.transpose(0, 1)

    q, k, v = heads("q", True), heads("k", True), heads("v", False)
    mixed = F.scaled_dot_product_attention(
        q[None], k[None], v[None], is_causal=True, enable_gqa=True
    )
    mixed = mixed[0].transpose(0, 1).reshape(count, -1)
    residual = normed if spec.norm_before_residual else hidden
    x = residual + product("self_attn.o_proj", mixed)
    inner = norm("post_attention_layernorm", x)
    return x + product(
        "mlp.down_proj", F.silu(product("mlp.gate_proj", inner)) * product("mlp.up_proj", inner)
    )

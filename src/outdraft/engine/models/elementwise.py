"""Rotary position embedding and silu, spelled out.

torch has one fused call for each (a complex product, F.silu), but at the end of a thread's share
these use scalar code that rounds differently. A row's bits would then depend on the number of
rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from outdraft.modelspec import ModelSpec, inverse_frequencies
from outdraft.modelspec.head import HeadSpec


class Rotation(NamedTuple):
    """Rotary position embedding of one step; both broadcast to (T, heads + kv_heads, head_dim)."""

    cos: Tensor
    sin: Tensor  # negated in the first half


class Rotary:
    """Positions → their rotation, times the query scale."""

    def __init__(self, spec: ModelSpec | HeadSpec, device: torch.device) -> None:
        frequencies = torch.as_tensor(inverse_frequencies(spec), dtype=torch.float32)
        self._frequencies = frequencies.to(device)  # (head_dim / 2,)
        # Queries carry the 1/sqrt(head_dim) of attention; keys do not.
        scale = torch.ones(spec.num_heads + spec.num_kv_heads, 1, device=device)
        scale[: spec.num_heads] = spec.head_dim**-0.5
        self._scale = scale
        self.still = Rotation(scale, torch.zeros_like(scale))  # of layers that do not rotate

    def __call__(self, positions: Tensor) -> Rotation:
        angles = torch.outer(positions.float(), self._frequencies)
        cos, sin = angles.cos(), angles.sin()
        return Rotation(
            self._scale * torch.cat([cos, cos], -1)[:, None],
            self._scale * torch.cat([-sin, sin], -1)[:, None],
        )


def rotate(x: Tensor, by: Rotation) -> Tensor:
    """Rotates element i of x (T, heads, head_dim) with element i + head_dim/2."""
    wide = x.float()
    swapped = wide.roll(x.shape[-1] // 2, -1)
    return (wide * by.cos).add_(swapped.mul_(by.sin)).to(x.dtype)


def silu(x: Tensor) -> Tensor:
    return x / x.neg().exp_().add_(1)

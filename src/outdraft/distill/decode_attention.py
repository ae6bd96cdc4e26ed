"""Attention of one new token of each text over its cached keys and values, as a Triton kernel.

The plain form reads every text up to the end of the longest one, and its scores several times.
This kernel reads each key and value once. It needs a GPU, where Triton comes with torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 64  # keys at a time
_MIN_ROWS = 16  # of a matrix product; a kv head has fewer queries


def supports_head_dim(head_dim: int) -> bool:
    return head_dim >= _MIN_ROWS and head_dim & (head_dim - 1) == 0


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, at: Tensor, window: int | None
) -> Tensor:
    """q (B, heads, 1, D), keys and values (B, kv_heads, room, D) up to position at (B,)."""
    b, heads, _, dim = q.shape
    kv_heads, room = keys.shape[1], keys.shape[2]
    per = heads // kv_heads
    q = q.contiguous()
    out = torch.empty_like(q)
    rows = max(_MIN_ROWS, triton.next_power_of_2(per))
    _attend_to_text[(b, kv_heads)](
        q, keys, values, at, out, room, window or room, dim**-0.5, per, dim, rows, _BLOCK
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _attend_to_text(  # type: ignore[no-untyped-def]
    q, keys, values, at, out, room, window, scale,
    PER: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One text and one kv head: a running softmax over blocks of keys."""
    pair = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    last = tl.load(at + tl.program_id(0)).to(tl.int32)
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    offsets = pair * PER * DIM + rows[:, None] * DIM + dims[None, :]
    query = tl.load(q + offsets, mask=rows[:, None] < PER, other=0.0)
    begin = tl.maximum(0, last - window + 1) // BLOCK * BLOCK
    text = pair.to(tl.int64) * room * DIM
    top = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    output = tl.zeros([ROWS, DIM], tl.float32)
    for block in range(begin, last + 1, BLOCK):
        positions = block + tl.arange(0, BLOCK)
        visible = (positions <= last) & (positions > last - window)
        where = text + positions[:, None] * DIM + dims[None, :]
        key = tl.load(keys + where, mask=visible[:, None], other=0.0)
        value = tl.load(values + where, mask=visible[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        scores = tl.where(visible[None, :], scores, -1e30)
        higher = tl.maximum(top, tl.max(scores, 1))
        shrink = tl.exp(top - higher)
        weights = tl.where(visible[None, :], tl.exp(scores - higher[:, None]), 0.0)
        total = total * shrink + tl.sum(weights, 1)
        output = output * shrink[:, None]
        output += tl.dot(weights.to(value.dtype), value, input_precision="ieee")
        top = higher
    output = output / total[:, None]
    tl.store(out + offsets, output.to(out.dtype.element_ty), mask=rows[:, None] < PER)

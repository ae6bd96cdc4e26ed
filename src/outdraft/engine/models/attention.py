"""Attention over the paged cache, one product per block.

Each row's result depends on that row alone, to the last bit: not on how many other rows
share the step, nor on how far the longest neighbour is padded. Speculation can then
never change a text through rounding. Two things bring this about (`benchmarks/kernels.py`
shows it on your machine): products always span exactly one block of keys, so that
the matrix library never splits a sum differently for a longer context, and no product has
fewer than `MIN_PRODUCT_ROWS` rows, where that library changes to other kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outdraft.engine.models.batch import Group

MIN_PRODUCT_ROWS = 4


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, group: Group, window: int | None
) -> Tensor:
    """queries (T, heads, D), already scaled; keys and values as in KVCache → (S*Q, heads*D)."""
    s, q, n = group.num_sequences, group.num_queries, group.num_blocks
    _, num_kv, block_size, dim = keys.shape
    per_kv = queries.shape[1] // num_kv  # query heads that share one kv head
    if group.first_block is not None:
        keys = keys.narrow(0, group.first_block, n)
        values = values.narrow(0, group.first_block, n)
    else:
        keys = keys.index_select(0, group.blocks)
        values = values.index_select(0, group.blocks)
    keys = keys.view(s * n * num_kv, block_size, dim)
    values = values.view(s * n * num_kv, block_size, dim)

    folded = queries.index_select(0, group.rows).view(s, q, num_kv, per_kv, dim).transpose(1, 2)
    folded = folded.reshape(s, 1, num_kv, q * per_kv, dim)
    folded = folded.expand(s, n, num_kv, q * per_kv, dim).reshape(-1, q * per_kv, dim)

    scores = torch.bmm(folded, keys.transpose(1, 2)).view(s, n, num_kv, q, per_kv, block_size)
    scores = scores.permute(0, 2, 3, 4, 1, 5).reshape(s, num_kv, q, per_kv, n * block_size)
    weights = torch.softmax(scores.float().add_(group.masks[window]), -1).to(values.dtype)
    weights = weights.view(s, num_kv, q, per_kv, n, block_size).permute(0, 4, 1, 2, 3, 5)
    weights = weights.reshape(s * n * num_kv, q * per_kv, block_size)

    out = torch.bmm(weights, values).view(s, n, num_kv, q, per_kv, dim)
    # A running sum adds the blocks strictly in order, so empty blocks behind change nothing.
    summed = out[:, 0] if n == 1 else out.cumsum(1)[:, -1]
    return summed.transpose(1, 2).reshape(s * q, num_kv * per_kv * dim)

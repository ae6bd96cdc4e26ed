"""Attention over the paged cache.

Each row's result depends on that row alone, to the last bit: not on how many other rows
share the step, nor on how far its neighbours make it padded. Speculation can then never
change a text through rounding. Two things bring this about (test_attention.py holds them to
it): values are summed over a fixed number of keys at a time, in order, because a matrix
library splits a long sum by its total length; and no product has fewer than
`MIN_PRODUCT_ROWS` rows, where that library changes to other kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outdraft.engine.models.batch import Group

MIN_PRODUCT_ROWS = 4
KEYS_PER_SUM = 128


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, group: Group, window: int | None
) -> Tensor:
    """queries (T, heads, D), already scaled; keys and values as in KVCache → (S*Q, heads*D)."""
    s, q = group.num_sequences, group.num_queries
    num_kv, _, block_size, dim = keys.shape
    per_kv = queries.shape[1] // num_kv  # query heads that share one kv head
    length = group.num_blocks * block_size
    keys, values = _gathered(keys, group, length), _gathered(values, group, length)

    if group.rows is not None:
        queries = queries.index_select(0, group.rows)
    elif len(queries) < s * q:  # a single row: repeated
        queries = queries.expand(s * q, -1, -1)
    folded = queries.view(s, q, num_kv, per_kv, dim).permute(2, 0, 1, 3, 4)
    folded = folded.reshape(num_kv * s, q * per_kv, dim)
    scores = torch.bmm(folded, keys.transpose(1, 2)).float()
    scores.view(num_kv, s, q, per_kv, length).add_(group.masks[window])
    weights = torch.softmax(scores, -1).to(values.dtype)  # (num_kv * S, Q * per_kv, length)

    out = torch.bmm(weights[..., :KEYS_PER_SUM], values[:, :KEYS_PER_SUM])
    for at in range(KEYS_PER_SUM, length, KEYS_PER_SUM):
        end = at + KEYS_PER_SUM
        out.baddbmm_(weights[..., at:end], values[:, at:end])
    out = out.view(num_kv, s, q, per_kv, dim).permute(1, 2, 0, 3, 4)
    return out.reshape(s * q, num_kv * per_kv * dim)


def _gathered(cache: Tensor, group: Group, length: int) -> Tensor:
    """(num_kv * S, length, D) of the group's sequences, in place where that is possible."""
    if group.first_block is not None:
        return cache.narrow(1, group.first_block, group.num_blocks).flatten(1, 2)
    return cache.index_select(1, group.blocks).view(-1, length, cache.shape[-1])

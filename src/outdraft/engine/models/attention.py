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
    folded = queries.view(s, q, num_kv, per_kv, dim).transpose(1, 2)
    folded = folded.reshape(s * num_kv, q * per_kv, dim)
    scores = torch.bmm(folded, keys.transpose(1, 2)).float()
    scores.view(s, num_kv, q, per_kv, length).add_(group.masks[window])
    weights = torch.softmax(scores, -1).to(values.dtype)  # (S * num_kv, Q * per_kv, length)

    out = torch.bmm(weights[..., :KEYS_PER_SUM], values[:, :KEYS_PER_SUM])
    for at in range(KEYS_PER_SUM, length, KEYS_PER_SUM):
        end = at + KEYS_PER_SUM
        out.baddbmm_(weights[..., at:end], values[:, at:end])
    out = out.view(s, num_kv, q, per_kv, dim).transpose(1, 2)
    return out.reshape(s * q, num_kv * per_kv * dim)


def _gathered(cache: Tensor, group: Group, length: int) -> Tensor:
    """(S * num_kv, length, D) of the group's sequences, in place where that is possible.

    The copy lies in the order in which the products go through it, so that a thread reads what it
    wrote itself: what another core wrote is slow to come by where cores do not share a cache.
    """
    if group.first_block is not None:
        return cache.narrow(1, group.first_block, group.num_blocks).flatten(1, 2)
    copied = cache.flatten(0, 1).index_select(0, group.blocks)
    return copied.view(-1, length, cache.shape[-1])

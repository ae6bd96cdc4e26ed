"""Attention over the paged cache.

Each row's result depends on that row alone, to the last bit: not on how many other rows
share the step, nor on how far it is padded to the length of others. Speculation can then never
change a text through rounding. There are two rules (tested in test_attention.py): values are
summed over a fixed number of keys at a time, in order, because a matrix library splits a long
sum by its total length; and no product has fewer than `MIN_PRODUCT_ROWS` rows, below which that
library changes to other kernels.
"""

import torch
from torch import Tensor

from outdraft.engine.models.batch import Batch, Group

MIN_PRODUCT_ROWS = 4
KEYS_PER_SUM = 128


def min_queries(num_heads: int, num_kv_heads: int) -> int:
    """Queries that a sequence needs so that none of its products is too small."""
    return -(-MIN_PRODUCT_ROWS // (num_heads // num_kv_heads))


def attend_batch(
    queries: Tensor, keys: Tensor, values: Tensor, batch: Batch, window: int | None
) -> Tensor:
    """queries (T, heads, D), already scaled; keys and values as in KVCache → (T, heads*D)."""
    parts = [attend_group(queries, keys, values, group, window) for group in batch.groups]
    attended = parts[0] if len(parts) == 1 else torch.cat(parts)
    if batch.merge is not None:
        return attended.index_select(0, batch.merge)
    # More rows than queries: a single row that was repeated.
    return attended if len(attended) == len(queries) else attended.narrow(0, 0, len(queries))


def attend_group(
    queries: Tensor, keys: Tensor, values: Tensor, group: Group, window: int | None
) -> Tensor:
    """The same for the sequences of one group, padding included: (S*Q, heads*D)."""
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
    """(S * num_kv, length, D) of the group's sequences, without a copy where that is possible.

    A copy has the order in which the products read it, so that each thread reads what it wrote
    itself: what another core wrote is slow to read where cores do not share a cache.
    """
    if group.first_block is not None:
        return cache.narrow(1, group.first_block, group.num_blocks).flatten(1, 2)
    copied = cache.flatten(0, 1).index_select(0, group.blocks)
    return copied.view(-1, length, cache.shape[-1])

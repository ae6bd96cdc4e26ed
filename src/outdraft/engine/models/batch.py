"""One step's tensors: a flat batch of runs, prepared once and read by every layer."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Group:
    """Runs of similar length, padded to one shape so that one product serves them all.

    S sequences, Q queries each, n blocks each.
    """

    num_sequences: int
    num_queries: int
    num_blocks: int
    rows: Tensor | None  # (S*Q,) which row of the batch each padded query is; None: all, in order
    # (S*kv_heads*n,) head * blocks of the cache + block; the scratch block where one is shorter
    blocks: Tensor
    first_block: int | None  # with one sequence on consecutive blocks: read them in place
    masks: Mapping[int | None, Tensor]  # window → (S, 1, Q, 1, n*block_size), 0 or -inf


@dataclass(frozen=True, slots=True)
class Batch:
    tokens: Tensor  # (T,)
    positions: Tensor  # (T,)
    slots: Tensor  # (T,) where the new keys and values go: block * block_size + offset in the block
    groups: tuple[Group, ...]
    # (T,) where each row's result is among all groups' padded queries; None: in order
    merge: Tensor | None
    logit_rows: Tensor  # (R,) rows whose logits are wanted

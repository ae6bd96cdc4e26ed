"""One step's tensors: a flat batch of runs, prepared once and read by every layer."""

from __future__ import annotations

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
    rows: Tensor  # (S*Q,) which row of the batch each padded query is
    blocks: Tensor  # (S*n,) block of the cache; the scratch block where a sequence is shorter
    first_block: int | None  # with one sequence on consecutive blocks: read them in place
    masks: Mapping[int | None, Tensor]  # window → (S, 1, Q, 1, n*block_size), 0 or -inf


@dataclass(frozen=True, slots=True)
class Batch:
    tokens: Tensor  # (T,)
    positions: Tensor  # (T,)
    write_blocks: Tensor  # (T,) where the new keys and values go
    write_offsets: Tensor  # (T,)
    groups: tuple[Group, ...]
    merge: Tensor  # (T,) where each row's result is among all groups' padded queries
    logit_rows: Tensor  # (R,) rows whose logits are wanted

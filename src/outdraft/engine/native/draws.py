"""Tokens of rows at temperature > 0, drawn by the compiled library (`draws.h`)."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor

from outdraft.engine.native.computer import computer
from outdraft.engine.native.library import CDraws, library


def can_draw(logits: Tensor) -> bool:
    is_here = logits.device.type == "cpu" and logits.dtype == torch.float32
    return is_here and library() is not None and (logits.shape[1] == 1 or logits.stride(1) == 1)


def draw_rows(
    logits: Tensor, rows: Seq[int], keys: Seq[int], ids: Tensor | None = None
) -> list[int]:
    """The column drawn in each of some rows of (R, V), with the noise of 64-bit keys.

    ids (V,) int32: the token id of every column, where that is not its number.
    """
    at = np.array(rows, dtype=np.int32)
    key = np.array(keys, dtype=np.uint64)
    columns = np.empty(len(at), dtype=np.int32)
    if ids is not None:
        assert ids.dtype == torch.int32
        assert ids.is_contiguous()
    draws = CDraws(
        logits=logits.data_ptr(),
        stride=logits.stride(0),
        size=logits.shape[1],
        num_draws=len(at),
        ids=None if ids is None else ids.data_ptr(),
        rows=at.ctypes.data,
        keys=key.ctypes.data,
        columns=columns.ctypes.data,
    )
    computer.draw(draws)
    drawn: list[int] = columns.tolist()
    return drawn

"""Tokens of rows at temperature > 0, drawn by the compiled library (`draws.h`)."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np
import torch
from numpy.typing import NDArray
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
    return _draw(logits, rows, keys, ids)


def draw_surely(
    logits: Tensor, keys: Seq[int | None], ids: Tensor | None = None
) -> tuple[list[int], list[float]]:
    """The column drawn in every row, and how far its score is above the second. None: no noise."""
    cold = np.array([key is None for key in keys], dtype=np.uint8)
    margins = np.empty(len(keys), dtype=np.float32)
    numbers = [key or 0 for key in keys]
    columns = _draw(logits, range(len(keys)), numbers, ids, is_cold=cold, margins=margins)
    return columns, margins.tolist()


def _draw(
    logits: Tensor,
    rows: Seq[int],
    keys: Seq[int],
    ids: Tensor | None,
    *,
    is_cold: NDArray[np.uint8] | None = None,
    margins: NDArray[np.float32] | None = None,
) -> list[int]:
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
        is_cold=None if is_cold is None else is_cold.ctypes.data,
        columns=columns.ctypes.data,
        margins=None if margins is None else margins.ctypes.data,
    )
    computer.draw(draws)
    drawn: list[int] = columns.tolist()
    return drawn

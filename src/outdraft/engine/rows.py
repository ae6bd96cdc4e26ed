"""Rows of tensors, copied and joined without a second thread.

torch copies more than some 32,000 numbers with all its threads, and they stay awake for a while in
case there is more: the next step of the compiled library then waits for a core, on two cores for
3.7 of 11 ms. numpy copies with one.
"""

from collections.abc import Sequence as Seq

import numpy as np
import torch
from torch import Tensor


def copy_rows(rows: Tensor) -> Tensor:
    return torch.from_numpy(rows.numpy().copy()) if _is_plain(rows) else rows.clone()


def join_rows(parts: Seq[Tensor]) -> Tensor:
    """One after the other; a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    if all(map(_is_plain, parts)):
        return torch.from_numpy(np.concatenate([each.numpy() for each in parts]))
    return torch.cat(list(parts))


def _is_plain(rows: Tensor) -> bool:
    return rows.device.type == "cpu" and rows.dtype == torch.float32

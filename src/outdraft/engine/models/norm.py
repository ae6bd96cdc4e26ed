"""RMS norm in as few operations as torch allows on a CPU.

A decoding step is hundreds of small operations between its products, and torch's own rms_norm is
six of them on a CPU. In float32 the stream (T, hidden) therefore has one more column, which holds
sqrt(hidden * eps): its Euclidean norm is then sqrt(hidden) times the wanted root mean square, eps
included, and three operations are enough.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def widened(x: Tensor, eps: float) -> Tensor:
    """x (T, hidden), with the extra column where `Norm` wants one."""
    if not _is_wide(x):
        return x
    return F.pad(x, (0, 1), value=(x.shape[1] * eps) ** 0.5)


class Norm:
    def __init__(self, weight: Tensor, eps: float) -> None:
        self.weight = weight  # (hidden,)
        self._eps = eps
        self._scaled = weight * len(weight) ** 0.5

    def __call__(self, x: Tensor, stream: Tensor) -> Tensor:
        """x (T, hidden), which is the first columns of stream = widened(x)."""
        if not _is_wide(x):
            return F.rms_norm(x, self.weight.shape, self.weight, self._eps)
        length: Tensor = torch.linalg.vector_norm(stream, dim=-1, keepdim=True)
        return (x / length).mul_(self._scaled)


def _is_wide(x: Tensor) -> bool:
    """bfloat16 must be summed in float32, and a GPU has a kernel for the whole norm."""
    return x.dtype == torch.float32 and x.device.type == "cpu"

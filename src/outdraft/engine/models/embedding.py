"""Rows of a (vocab, hidden) matrix by token. Where it is the output matrix too, it is held once."""

import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.models.packed import PackedProduct, fits_library


class PlainEmbedding:
    """A tensor; what is held on a GPU."""

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self.dtype = weight.dtype
        self.device = weight.device

    def rows(self, tokens: Tensor) -> Tensor:
        """(T,) → (T, hidden)"""
        return F.embedding(tokens, self._weight)


AnyEmbedding = PlainEmbedding | PackedProduct


def make_embedding(weight: Tensor, quantization: str) -> AnyEmbedding:
    """weight (vocab, hidden) in the dtype and on the device that the model computes in."""
    if fits_library(weight):
        return PackedProduct(weight, None, quantization)
    return PlainEmbedding(weight)

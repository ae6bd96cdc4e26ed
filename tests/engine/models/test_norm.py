"""The norm in three operations is the norm, and a row's is that row's alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.models.norm import Norm, widened

WIDTHS = [16, 64, 72, 576, 960, 2048]
EPS = 1e-5
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def random(*extents: int, seed: int = 0) -> Tensor:
    return torch.randn(*extents, generator=torch.Generator().manual_seed(seed))


def normed(norm: Norm, x: Tensor, eps: float = EPS) -> Tensor:
    """As the decoder calls it: x is a view of the stream."""
    stream = widened(x, eps)
    return norm(stream.narrow(1, 0, x.shape[1]), stream)


@pytest.mark.parametrize("eps", [1e-5, 1e-6])
@pytest.mark.parametrize("scale", [1e-4, 1e-2, 1.0, 300.0])
@pytest.mark.parametrize("width", WIDTHS)
def test_equals_the_exact_norm(width: int, scale: float, eps: float) -> None:
    """At 1e-4 it is `eps` that makes the norm what it is: the extra column has to be right."""
    x, weight = scale * random(9, width), random(width, seed=1)
    expected = F.rms_norm(x.double(), (width,), weight.double(), eps)
    got = normed(Norm(weight, eps), x, eps)
    assert got.dtype == torch.float32
    # A handful of roundings: of the column, the length, the quotient, the weight, the product.
    error = (got.double() - expected).abs() / expected.abs()
    assert float(error.max()) < 8 * 2.0**-24


def test_zeros_stay_zeros() -> None:
    assert torch.equal(normed(Norm(random(64), EPS), torch.zeros(3, 64)), torch.zeros(3, 64))


def test_bfloat16_is_summed_in_float32() -> None:
    x, weight = random(9, 576).bfloat16(), random(576, seed=1).bfloat16()
    assert widened(x, EPS) is x  # and needs no column
    got = normed(Norm(weight, EPS), x)
    expected = F.rms_norm(x.double(), (576,), weight.double(), EPS)
    assert got.dtype == torch.bfloat16
    # Two roundings to 8 bits; 576 squares added up in bfloat16 would be off by far more.
    assert float(((got.double() - expected).abs() / expected.abs()).max()) < 2 * 2.0**-8


def test_the_stream_keeps_its_column() -> None:
    """Layers add to the view; the column has to survive that, or the second norm is wrong."""
    x, more, norm = random(5, 64), random(5, 64, seed=2), Norm(random(64, seed=1), EPS)
    stream = widened(x, EPS)
    view = stream.narrow(1, 0, 64)
    view += more
    assert torch.equal(norm(view, stream), normed(norm, x + more))
    assert torch.equal(x, random(5, 64))  # what was given is left alone


@DTYPES
@pytest.mark.parametrize("threads", [1, 3])
def test_a_row_does_not_depend_on_its_neighbours(
    dtype: torch.dtype, threads: int, set_threads: Callable[[int], None]
) -> None:
    set_threads(threads)
    for width in WIDTHS:
        norm, x = Norm(random(width, seed=1).to(dtype), EPS), random(64, width).to(dtype)
        alone = torch.cat([normed(norm, row[None]) for row in x])
        for count in range(1, 65):
            for first in {0, 64 - count, (64 - count) // 2}:
                part = normed(norm, x[first : first + count])
                assert torch.equal(part, alone[first : first + count]), (width, count)

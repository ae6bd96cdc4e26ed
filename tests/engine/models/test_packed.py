"""Products of the compiled library: right in every format, and every row by itself."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outdraft.engine.models.packed import PackedProduct, fits_library
from outdraft.engine.native.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="the library is not compiled here")

# Relative to the length of the result: formats and the rounding of inputs to 8 bits.
ERRORS = {
    ("none", torch.float32): 1e-6,
    ("none", torch.bfloat16): 1e-2,
    ("int8", torch.float32): 1e-2,
    ("int4", torch.float32): 0.12,
}


def random(*extents: int, seed: int = 0) -> Tensor:
    return torch.randn(*extents, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("quantization", "dtype"), ERRORS)
@pytest.mark.parametrize("shape", [(1, 32), (31, 64), (32, 32), (33, 96), (200, 576), (576, 1536)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_it_is_the_product(
    has_bias: bool, shape: tuple[int, int], quantization: str, dtype: torch.dtype
) -> None:
    weight, x = random(*shape).to(dtype), random(13, shape[1], seed=1).to(dtype)
    bias = random(shape[0], seed=2).to(dtype) if has_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    got = PackedProduct(weight, bias, quantization)(x)
    assert got.dtype == dtype
    assert float((got - expected).norm() / expected.norm()) < ERRORS[quantization, dtype]


@given(
    st.integers(1, 80), st.integers(1, 8), st.sampled_from(["none", "int8", "int4"]), st.randoms()
)
def test_a_row_does_not_depend_on_its_neighbours(
    out: int, groups: int, quantization: str, draw: Random
) -> None:
    product = PackedProduct(random(out, 32 * groups), None, quantization)
    x = random(40, 32 * groups, seed=3) * 10.0 ** draw.randrange(-3, 4)
    alone = torch.cat([product(row[None]) for row in x])
    for _ in range(5):
        first, count = draw.randrange(40), draw.randrange(1, 40)
        part = x[first : first + count]
        assert torch.equal(product(part), alone[first : first + count])


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_nor_on_the_number_of_threads(quantization: str, set_threads: object) -> None:
    assert callable(set_threads)
    product = PackedProduct(random(200, 576), None, quantization)
    x = random(100, 576, seed=3)
    before = product(x)
    for threads in (1, 2, 3, 7):
        set_threads(threads)
        assert torch.equal(product(x), before)
        assert torch.equal(product(x[40:47]), before[40:47])


@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_zeros_and_large_values(quantization: str) -> None:
    weight = random(64, 64)
    product = PackedProduct(weight, None, quantization)
    x = torch.stack([torch.zeros(64), torch.full((64,), 1e30), torch.full((64,), 1e-30)])
    y = product(x)
    assert torch.equal(y[0], torch.zeros(64))
    assert torch.isfinite(y).all()
    assert torch.allclose(y[1] / 1e30, y[2] / 1e-30, rtol=1e-3, atol=1e-3)
    empty = PackedProduct(torch.zeros(64, 64), None, quantization)
    assert torch.equal(empty(x), torch.zeros(3, 64))


def test_what_was_in_4_bits_stays_what_it_was() -> None:
    """Weights of a Q4_1 file, sixteen steps from a lowest value, lose nothing."""
    codes = torch.randint(0, 16, (64, 4, 32), generator=torch.Generator().manual_seed(0))
    codes[..., 0], codes[..., 1] = 0, 15
    scale, low = random(64, 4, 1).abs().half().float(), random(64, 4, 1, seed=1).half().float()
    weight = (codes * scale + low).view(64, 128)
    x = torch.zeros(4, 128)
    x[range(4), [3, 40, 70, 100]] = 127.0  # no rounding of inputs
    got = PackedProduct(weight, None, "int4")(x)
    assert torch.allclose(got, x @ weight.T, rtol=1e-5, atol=1e-4)


def test_what_cannot_be_packed() -> None:
    assert fits_library(torch.zeros(5, 64))
    assert not fits_library(torch.zeros(5, 40))


@pytest.mark.parametrize(
    ("quantization", "dtype", "most"),
    [
        ("none", torch.float32, 0.0),
        ("none", torch.bfloat16, 0.0),
        ("int8", torch.float32, 0.51 / 127),  # half a step of the largest value of a group
        ("int4", torch.float32, 0.51 / 15),  # half a step of a group's range
    ],
)
def test_rows_are_the_weights(quantization: str, dtype: torch.dtype, most: float) -> None:
    weight = random(70, 96).to(dtype)
    outputs = torch.tensor([69, 0, 31, 32, 0])
    rows = PackedProduct(weight, None, quantization).rows(outputs)
    assert rows.dtype == dtype
    groups = (weight[outputs].float() - rows.float()).view(5, 3, 32).abs().amax(-1)
    wanted = weight[outputs].float().view(5, 3, 32)
    size = wanted.amax(-1) - wanted.amin(-1) if quantization == "int4" else wanted.abs().amax(-1)
    assert torch.all(groups <= most * size)


def test_rows_are_what_products_compute_with() -> None:
    weight = random(40, 64)
    for quantization in ("int8", "int4"):
        product = PackedProduct(weight, None, quantization)
        ones = torch.eye(64) * 127  # numbers that 8 bits hold
        assert torch.allclose(product(ones) / 127, product.rows(torch.arange(40)).T, atol=1e-6)


def test_rows_that_are_not_there_are_refused() -> None:
    product = PackedProduct(random(40, 64), None, "none")
    for wrong in (-1, 40):
        with pytest.raises(IndexError):
            product.rows(torch.tensor([3, wrong]))

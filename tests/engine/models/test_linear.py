"""Every product kernel computes the product, and a row's result is that row's alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from outdraft.engine.models import linear
from outdraft.engine.models.linear import (
    INT4_GROUP,
    STEADY_MIN_ROWS,
    AnyProduct,
    Product,
    SteadyProduct,
    can_prepack,
    make_product,
    most_rows_alike,
    sensitive_sample,
)
from outdraft.errors import OptionError

SHAPES = [(48, 32), (96, 64), (384, 576), (1152, 192)]  # (out, in)
COUNTS = [*range(1, 18), 31, 32, 33, 63, 64]


def random(*extents: int, seed: int = 0) -> Tensor:
    return torch.randn(*extents, generator=torch.Generator().manual_seed(seed))


def exact(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x.double() @ weight.double().t()
    return product if bias is None else product + bias.double()


def products(quantization: str, dtype: torch.dtype, bias: bool) -> list[tuple[Tensor, AnyProduct]]:
    made = []
    for out, inputs in SHAPES:
        weight = random(out, inputs).to(dtype)
        added = random(out, seed=1).to(dtype) if bias else None
        made.append((weight, make_product(weight, added, quantization)))
    return made


@pytest.fixture(autouse=True)
def not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the compiled library cannot be loaded."""
    monkeypatch.setattr(linear, "fits_library", lambda weight: False)


@pytest.fixture(params=["packed", "plain"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Also as on a CPU for which oneDNN has no kernel."""
    if request.param == "plain":
        monkeypatch.setattr(linear, "can_prepack", lambda dtype: False)
    elif not can_prepack(torch.bfloat16):
        pytest.skip("this torch cannot prepack bfloat16")
    return str(request.param)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)], ids=str
)
def test_steady_product(kernel: str, dtype: torch.dtype, tolerance: float, bias: bool) -> None:
    for weight, product in products("none", dtype, bias):
        assert isinstance(product, SteadyProduct)
        x = random(5, weight.shape[1], seed=2).to(dtype)
        expected = exact(x, weight, random(len(weight), seed=1).to(dtype) if bias else None)
        assert product(x).dtype == dtype
        error = (product(x).double() - expected).abs() / expected.abs().amax()
        assert float(error.max()) < tolerance


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_quantized_product(quantization: str, dtype: torch.dtype, bias: bool) -> None:
    """Each weight is off by half a step at most; the sum of those bounds the result."""
    for weight, product in products(quantization, dtype, bias):
        x = random(5, weight.shape[1], seed=2).to(dtype)
        expected = exact(x, weight, random(len(weight), seed=1).to(dtype) if bias else None)
        values = weight.float()
        if quantization == "int8":
            step = (values.abs().amax(1, keepdim=True) / 127).expand_as(values)
        else:
            grouped = values.unflatten(1, (-1, INT4_GROUP))
            step = (grouped.amax(-1) - grouped.amin(-1)) / 15
            step = step.repeat_interleave(INT4_GROUP, 1)
        # bfloat16 rounds the activations, the scales, the zero points and the result.
        reach = x.double().abs() @ (step / 2 + values.abs().amax() * 2.0**-7).double().t()
        slack = expected.abs() * 2.0**-7
        got = product(x)
        assert got.dtype == dtype
        assert ((got.double() - expected).abs() <= reach + slack).all()
        # And on average far nearer than the worst case allows.
        relative = (got.double() - expected).norm() / expected.norm()
        assert float(relative) < {"int8": 0.02, "int4": 0.15}[quantization]


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ("none", torch.float32),
        ("none", torch.bfloat16),
        ("int8", torch.float32),
        ("int8", torch.bfloat16),
        ("int4", torch.bfloat16),
    ],
    ids=str,
)
def test_a_row_does_not_depend_on_its_neighbours(
    kernel: str, quantization: str, dtype: torch.dtype
) -> None:
    """Bit for bit: this is why speculation cannot change a text through rounding."""
    for weight, product in products(quantization, dtype, bias=True):
        x = random(64, weight.shape[1], seed=3).to(dtype)
        least = product.min_rows
        assert least == (STEADY_MIN_ROWS if quantization == "none" else 1)
        alone = torch.cat([product(row.expand(least, -1).contiguous())[:1] for row in x])
        for count in COUNTS:
            if count >= least:
                for first in {0, 64 - count, (64 - count) // 2}:
                    part = product(x[first : first + count])
                    assert torch.equal(part, alone[first : first + count]), (weight.shape, count)


def one_order(x: Tensor, weight: Tensor) -> Tensor:
    return (x.float() @ weight.float().t()).to(x.dtype)


def other_order(x: Tensor, weight: Tensor) -> Tensor:
    """The same sums, begun at the other end."""
    return one_order(x.flip(1), weight.flip(1))


def by_rows(weight: Tensor, bias: Tensor | None) -> Product:
    """A kernel with another order of summation for 9 rows and more."""
    return lambda x: one_order(x, weight) if len(x) < 9 else other_order(x, weight)


def by_place(weight: Tensor, bias: Tensor | None) -> Product:
    """A kernel that sums each fourth row in another order."""

    def multiply(x: Tensor) -> Tensor:
        y = torch.cat([one_order(row[None], weight) for row in x])
        y[3::4] = torch.cat([other_order(row[None], weight) for row in x])[3::4]
        return y

    return multiply


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(16, 8), (48, 32), (96, 64), (96, 65), (1152, 192)])
def test_another_order_of_summation_is_noticed(shape: tuple[int, int], dtype: torch.dtype) -> None:
    sample, weight = sensitive_sample(*shape, dtype)
    assert weight.shape == shape
    assert most_rows_alike(by_rows(weight, None), sample) == 8
    assert most_rows_alike(by_place(weight, None), sample) == 1


@pytest.mark.parametrize("planted", [by_rows, by_place])
def test_a_kernel_that_minds_is_called_so_that_it_cannot(
    planted: Callable[[Tensor, Tensor | None], Product], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "can_prepack", lambda dtype: False)
    monkeypatch.setattr(linear, "_plain_kernel", planted)
    weight, x = random(96, 64), random(40, 64, seed=3)
    product = make_product(weight, None, "none")
    alone = torch.cat([product(row.expand(4, -1).contiguous())[:1] for row in x])
    for count in (4, 5, 8, 9, 13, 40):
        for first in (0, 1, 2, 40 - count):
            assert torch.equal(product(x[first : first + count]), alone[first : first + count])


@pytest.mark.parametrize("threads", [1, 3, 7])
def test_nor_on_the_number_of_threads(threads: int, set_threads: object) -> None:
    assert callable(set_threads)
    for weight, product in products("none", torch.float32, bias=True):
        x = random(512, weight.shape[1], seed=3)
        before = product(x)
        set_threads(threads)
        assert torch.equal(product(x), before)
        assert torch.equal(product(x[100:107]), before[100:107])


@pytest.mark.parametrize(
    ("quantization", "extents", "parts"),
    [
        ("int3", (48, 32), ("int3", "none, int8, int4")),
        ("int4", (48, 40), ("48x40", "multiple of 32", "int8")),
        ("int4", (40, 64), ("40x64", "16", "int8")),
        ("int8", (48, 40), ("48x40", "16")),
    ],
)
def test_what_cannot_be_made_is_refused_in_one_line(
    quantization: str, extents: tuple[int, int], parts: tuple[str, ...]
) -> None:
    with pytest.raises(OptionError) as refused:
        make_product(random(*extents), None, quantization)
    message = str(refused.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message

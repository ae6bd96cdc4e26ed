"""Matrix products by weight format and device: the kernels torch already has.

Which kernel serves where was chosen by measurement (`benchmarks/kernels.py`, results in
`dev/LOG.md`). On a CPU the plain product is slow for the few rows of a decoding step, and
rounds differently for one row than for several; oneDNN's prepacked product is neither.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import QUANTIZATIONS

Product = Callable[[Tensor], Tensor]  # (T, in) → (T, out)

INT8_INPUTS = 16  # the kernel reads so many at once, without looking whether they are there
INT4_GROUP = 32  # weights that share one scale and zero point

# The prepacked kernels are as fast for 4 rows as for 1, and only from there on is every
# row's result independent of how many rows there are.
PACKED_MIN_ROWS = 4


class DenseProduct:
    """torch's own product; what runs on a GPU."""

    min_rows = 1

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


class PackedProduct:
    """oneDNN with weights packed ahead into the order its kernel reads them."""

    min_rows = PACKED_MIN_ROWS

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, 2 * PACKED_MIN_ROWS)
        self._bias = bias
        self._product = torch.ops.mkldnn._linear_pointwise.default
        shape = (*weight.shape, weight.dtype, torch.get_num_threads())
        if shape not in _MAX_ROWS:
            sample = torch.randn(_ROWS_TO_TRY[-1], weight.shape[1]).to(weight.dtype)
            _MAX_ROWS[shape] = most_rows_alike(self._multiply, sample)
        self._max_rows = _MAX_ROWS[shape]

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) <= self._max_rows:
            return self._multiply(x)
        if self._max_rows < 2 * PACKED_MIN_ROWS:
            padded = F.pad(x, (0, 0, 0, -len(x) % PACKED_MIN_ROWS))
            parts = padded.split(PACKED_MIN_ROWS)
        else:  # of nearly one size, so that none is too small
            parts = x.tensor_split(-(-len(x) // self._max_rows))
        return torch.cat([self._multiply(part) for part in parts])[: len(x)]

    def _multiply(self, x: Tensor) -> Tensor:
        y: Tensor = self._product(x, self._weight, self._bias, "none", [], "")
        return y


# By shape of the weights, dtype and number of threads; found when first needed.
_MAX_ROWS: dict[tuple[int, int, torch.dtype, int], int] = {}
_ROWS_TO_TRY = (5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)


def most_rows_alike(product: Product, sample: Tensor) -> int:
    """How many rows `product` takes with every row's bits what they are among 4.

    Some CPUs' kernels sum in another order from some number of rows on. More than 64 rows
    are never taken at once: a prompt then is about 7 % slower, and nothing else is.
    """
    expected = torch.cat([product(part) for part in sample.split(PACKED_MIN_ROWS)])
    most = PACKED_MIN_ROWS
    for rows in _ROWS_TO_TRY:
        if not torch.equal(product(sample[:rows]), expected[:rows]):
            break
        most = rows
    return most


class Int8Product:
    """Weights in 8 bits with one scale per output row; activations stay bfloat16."""

    min_rows = 1

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        scale = weight.float().abs().amax(dim=1).clamp_min(1e-8) / 127  # (out,)
        self._weight = (weight.float() / scale[:, None]).round_().to(torch.int8)
        self._scale = scale.to(torch.bfloat16)
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y = torch._weight_int8pack_mm(x.bfloat16(), self._weight, self._scale)
        y = y.type_as(x)
        return y if self._bias is None else y + self._bias


class Int4Product:
    """Weights in 4 bits, a scale and a zero point per group of 32 inputs."""

    min_rows = 1

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        out, inputs = weight.shape
        grouped = weight.float().view(out, inputs // INT4_GROUP, INT4_GROUP)
        low, high = grouped.amin(-1), grouped.amax(-1)  # (out, groups)
        scale = ((high - low) / 15).clamp_min(1e-8)
        codes = ((grouped - low[..., None]) / scale[..., None]).round_().clamp_(0, 15)
        codes = codes.to(torch.int32).view(out, inputs)
        # The kernel reads (code - 8) * scale + zero.
        zero = low + 8 * scale
        self._scales = torch.stack([scale.t(), zero.t()], -1).to(torch.bfloat16).contiguous()
        if weight.is_cuda:
            packed = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
            tiles = next(tiles for tiles in (8, 4, 2) if inputs % (16 * tiles) == 0)
            self._weight = torch._convert_weight_to_int4pack(packed, tiles)
            self._product = torch._weight_int4pack_mm
        else:
            self._weight = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
            self._product = torch._weight_int4pack_mm_for_cpu
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        y = self._product(x.bfloat16(), self._weight, INT4_GROUP, self._scales)
        y = y.type_as(x)
        return y if self._bias is None else y + self._bias


AnyProduct = DenseProduct | PackedProduct | Int8Product | Int4Product


def make_product(weight: Tensor, bias: Tensor | None, quantization: str) -> AnyProduct:
    """weight (out, in) in the dtype the model computes in, on the device it computes on."""
    out, inputs = weight.shape
    if quantization == "int8":
        if inputs % INT8_INPUTS:
            raise OptionError(
                f"int8 needs weights whose inputs are a multiple of {INT8_INPUTS}, "
                f"got {out}x{inputs}; use none"
            )
        return Int8Product(weight, bias)
    if quantization == "int4":
        if inputs % INT4_GROUP or out % 16:
            raise OptionError(
                f"int4 needs weights whose inputs are a multiple of {INT4_GROUP} and outputs of "
                f"16, got {out}x{inputs}; use int8"
            )
        return Int4Product(weight, bias)
    if quantization != "none":
        raise unknown_choice("quantization", quantization, QUANTIZATIONS)
    if weight.device.type == "cpu" and can_prepack(weight.dtype):
        return PackedProduct(weight, bias)
    return DenseProduct(weight, bias)


def can_prepack(dtype: torch.dtype) -> bool:
    """oneDNN is not in every build of torch, nor bfloat16 on every CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

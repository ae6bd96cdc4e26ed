"""Matrix products by weight format and device: the kernels torch already has.

The kernels were chosen by measurement (`benchmarks/kernels.py`, results in `dev/LOG.md`). On a
CPU the plain product is slow for the few rows of a decoding step, and rounds differently for one
row than for several. oneDNN's prepacked product does neither.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.models.packed import PackedProduct, fits_library
from outdraft.errors import OptionError, unknown_choice
from outdraft.speculation import QUANTIZATIONS

Product = Callable[[Tensor], Tensor]  # (T, in) → (T, out)

INT8_INPUTS = 16  # the kernel reads so many at once without a bounds check
INT4_GROUP = 32  # weights that share one scale and zero point

# The kernels are as fast for 4 rows as for 1 (the plain one nearly), and only from there on is
# every row's result independent of how many rows there are.
STEADY_MIN_ROWS = 4


class DenseProduct:
    """torch's own product; what runs on a GPU."""

    min_rows = 1

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self._weight, self._bias)


class SteadyProduct:
    """A kernel on a CPU, called with such numbers of rows that each row always has the same bits.

    oneDNN with weights packed ahead into the order its kernel reads them; where it has none for
    this CPU, torch's own product.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        make_kernel = _packed_kernel if can_prepack(weight.dtype) else _plain_kernel
        self._multiply = make_kernel(weight, bias)
        out, inputs = weight.shape
        shape = (out, inputs, weight.dtype, torch.get_num_threads(), make_kernel)
        if shape not in _MAX_ROWS:
            sample, sensitive = sensitive_sample(out, inputs, weight.dtype)
            _MAX_ROWS[shape] = most_rows_alike(make_kernel(sensitive, None), sample)
        self._max_rows = _MAX_ROWS[shape]
        self.min_rows = min(STEADY_MIN_ROWS, self._max_rows)

    def __call__(self, x: Tensor) -> Tensor:
        if len(x) <= self._max_rows:
            return self._multiply(x)
        if self._max_rows < 2 * STEADY_MIN_ROWS:
            padded = F.pad(x, (0, 0, 0, -len(x) % self.min_rows))
            parts = padded.split(self.min_rows)
        else:  # of nearly one size, so that none is too small
            parts = x.tensor_split(-(-len(x) // self._max_rows))
        return torch.cat([self._multiply(part) for part in parts])[: len(x)]


def _packed_kernel(weight: Tensor, bias: Tensor | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, 2 * STEADY_MIN_ROWS)
    product = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: product(x, packed, bias, "none", [], "")


def _plain_kernel(weight: Tensor, bias: Tensor | None) -> Product:
    return lambda x: F.linear(x, weight, bias)


# By shape of the weights, dtype, number of threads and kernel; measured when first needed.
_MAX_ROWS: dict[tuple[object, ...], int] = {}
_ROWS_TO_TRY = (5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
_DIFFERENT_OUTPUTS = 512  # of a sample's weights, then the same again: random numbers take time


def sensitive_sample(out: int, inputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows and weights whose products are 0, but for rounding: what is left of a sum depends on its
    order alone, and bfloat16 does not round that away. Large and small numbers are mixed, so that
    few of them do too."""
    draw = torch.Generator().manual_seed(0)
    half = inputs // 2
    rows = torch.zeros(_ROWS_TO_TRY[-1], inputs)
    weight = torch.zeros(min(out, _DIFFERENT_OUTPUTS), inputs)
    order = torch.randperm(inputs, generator=draw)
    first, second = order[:half], order[half : 2 * half]
    size = torch.randint(-8, 9, (half,), generator=draw).exp2()
    rows[:, first] = torch.randn(len(rows), half, generator=draw) * size
    weight[:, first] = torch.randn(len(weight), half, generator=draw)
    rows[:, second], weight[:, second] = -rows[:, first], weight[:, first]
    return rows.to(dtype), weight.to(dtype).repeat(-(-out // len(weight)), 1)[:out]


def most_rows_alike(product: Product, sample: Tensor) -> int:
    """The most rows for which every row of `product` has the same bits as among 4 rows.

    1 if already among 4 rows the place of a row matters. On some CPUs, kernels sum in another
    order from some number of rows on. More than 64 rows are never computed at once, which makes
    prompts about 7 % slower and nothing else.
    """
    expected = torch.cat([product(part) for part in sample.split(STEADY_MIN_ROWS)])
    for shift in range(1, STEADY_MIN_ROWS):
        place = slice(shift, shift + STEADY_MIN_ROWS)
        if not torch.equal(product(sample[place]), expected[place]):
            return 1
    most = STEADY_MIN_ROWS
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


AnyProduct = DenseProduct | SteadyProduct | Int8Product | Int4Product | PackedProduct


def make_product(weight: Tensor, bias: Tensor | None, quantization: str) -> AnyProduct:
    """weight (out, in) in the dtype the model computes in, on the device it computes on."""
    out, inputs = weight.shape
    if quantization not in ("none", *QUANTIZATIONS):
        raise unknown_choice("quantization", quantization, QUANTIZATIONS)
    if fits_library(weight):
        return PackedProduct(weight, bias, quantization)
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
    is_on_cpu = weight.device.type == "cpu"
    return SteadyProduct(weight, bias) if is_on_cpu else DenseProduct(weight, bias)


def can_prepack(dtype: torch.dtype) -> bool:
    """oneDNN is not in every build of torch, nor bfloat16 on every CPU."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())

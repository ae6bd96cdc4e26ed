"""Products of the compiled library: weights packed once, read by whole steps (`native/products.h`).

A row's result has the same bits whatever other rows it is computed with, by construction.
"""

import torch
from torch import Tensor

from outdraft.engine.native.computer import computer
from outdraft.engine.native.library import FORMATS, GROUP, CProduct, library
from outdraft.engine.native.memory import huge_pages


class PackedProduct:
    """Weights in float32, bfloat16, int8 (a scale per 32 inputs) or int4 (the lowest value too).
    Sums are float32. In int8 and int4, inputs are rounded to 8 bits as well, 32
    with one scale."""

    min_rows = 1

    def __init__(self, weight: Tensor, bias: Tensor | None, quantization: str) -> None:
        lib = library()
        assert lib is not None
        out, inputs = weight.shape
        self.dtype, self.device = weight.dtype, weight.device
        name = quantization if quantization != "none" else str(weight.dtype).removeprefix("torch.")
        kind = FORMATS[name]
        self.num_outputs, self._num_inputs = out, inputs
        self._panels = huge_pages.take(lib.packed_bytes(kind, out, inputs))
        self._bias = None if bias is None else bias.float().contiguous()
        source = weight.float().contiguous()
        lib.pack(kind, out, inputs, source.data_ptr(), self._panels.data_ptr())
        self.struct = CProduct(
            kind,
            out,
            inputs,
            self._panels.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
        )

    def __call__(self, x: Tensor) -> Tensor:
        values = x.float().contiguous()
        outputs = torch.empty(len(x), self.num_outputs)
        computer.multiply(self.struct, values, outputs)
        return outputs.to(x.dtype)

    def rows(self, outputs: Tensor) -> Tensor:
        """The weights of these outputs (T,), as they are after packing: (T, inputs)."""
        lib, wanted = library(), outputs.int().contiguous()
        assert lib is not None
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < self.num_outputs:
            raise IndexError(f"rows {wanted.tolist()} of {self.num_outputs}")
        rows = torch.empty(len(wanted), self._num_inputs)
        lib.unpack_rows(self.struct, len(wanted), wanted.data_ptr(), rows.data_ptr())
        return rows.to(self.dtype)


def fits_library(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and weight.shape[1] % GROUP == 0 and library() is not None

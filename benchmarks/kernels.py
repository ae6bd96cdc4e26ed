"""Which matrix product should a decoding step use, and does a row's result depend on other rows?

A decoding step multiplies a few rows (one token, or a short verification run) by every weight of
the model. For each shape of the default model this prints, by kernel and number of rows, the time
of one product with weights that are not in the CPU cache, and which row counts give the *same bits*
for the first row. A kernel whose row counts are all in one class cannot change a text, however many
tokens are verified at once.

    python benchmarks/kernels.py [--threads 2] [--reps 40] [--json]

linear    torch.nn.functional.linear, what a plain model does
flipped   torch.mm(weight, x.T).T
packed    oneDNN with prepacked weights, what the engine uses for float32 and bfloat16
int8      torch._weight_int8pack_mm          int4   torch._weight_int4pack_mm_for_cpu
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from outdraft.engine.models.linear import Int4Product, Int8Product, SteadyProduct, can_prepack

SHAPES = {"qkv": (960, 576), "gate_up": (3072, 576), "down": (576, 1536), "head": (49152, 576)}
ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 64)
_COLD_BYTES = 120e6  # weights are rotated through this much memory, more than any cache holds

Product = Callable[[Tensor], Tensor]


def kernels(weight: Tensor) -> dict[str, tuple[torch.dtype, Product]]:
    half = weight.to(torch.bfloat16)
    products: dict[str, tuple[torch.dtype, Product]] = {
        "linear": (torch.float32, lambda x: F.linear(x, weight)),
        "flipped": (torch.float32, lambda x: torch.mm(weight, x.t()).t()),
        "packed": (torch.float32, SteadyProduct(weight, None)),
        "int8": (torch.bfloat16, Int8Product(weight, None)),
        "int4": (torch.bfloat16, Int4Product(weight, None)),
    }
    if can_prepack(torch.bfloat16):
        products["packed bf16"] = (torch.bfloat16, SteadyProduct(half, None))
    return products


def median_us(product: list[Product], x: Tensor, reps: int) -> float:
    times = []
    for turn in range(reps + 5):
        start = time.perf_counter()
        product[turn % len(product)](x)
        times.append(time.perf_counter() - start)
    return sorted(times[5:])[reps // 2] * 1e6


def classes(product: Product, x: Tensor) -> list[list[int]]:
    """Row counts grouped by the bits of the first row's result."""
    groups: list[tuple[Tensor, list[int]]] = []
    for rows in ROWS:
        first = product(x[:rows].contiguous())[:1].clone()
        for bits, members in groups:
            if torch.equal(bits, first):
                members.append(rows)
                break
        else:
            groups.append((first, [rows]))
    return [members for _, members in groups]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    report: dict[str, object] = {
        "threads": args.threads,
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }
    with torch.inference_mode():
        for name, (out, inputs) in SHAPES.items():
            copies = max(1, int(_COLD_BYTES / (out * inputs * 4)))
            sets = [kernels(torch.randn(out, inputs) * 0.05) for _ in range(copies)]
            table: dict[str, object] = {}
            for kernel, (dtype, one) in sets[0].items():
                products = [each[kernel][1] for each in sets]
                reps = max(8, args.reps // (4 if out > 10_000 else 1))
                times = {
                    rows: median_us(products, torch.randn(rows, inputs).to(dtype), reps)
                    for rows in ROWS
                }
                same = classes(one, torch.randn(max(ROWS), inputs).to(dtype))
                table[kernel] = {"us": times, "same_bits": same}
                if not args.json:
                    cells = " ".join(f"{rows}:{us:.0f}" for rows, us in times.items())
                    print(f"{name:8} {kernel:12} µs by rows  {cells}\n{'':22}same bits    {same}")
            report[name] = table
    if args.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()

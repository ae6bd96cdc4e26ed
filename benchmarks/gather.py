"""In which order should attention gather the keys of several sequences?

    python benchmarks/gather.py [--sequences 4] [--context 320] [--seconds 60] [--json]

All threads write the copy, then all threads read it. In the order (heads, sequences, keys) a thread
reads part of what another one wrote; in the order (sequences, heads, keys) it reads what it wrote
itself. That hardly matters while cores share a cache; when they do not, data that another core
wrote is slow to read. A virtual machine can change from one to the other at any moment, so both
orders take turns. Every line is the median of 20 passes over 30 layers; the last line is the ratio.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from arms import machine, machine_line, ratio, ratio_text
from outdraft.engine.models.attention import attend_group
from outdraft.engine.models.batch import Group

LAYERS, KV_HEADS, PER_KV, BLOCK, DIM = 30, 3, 3, 16, 64  # the default model's
_PASSES = 20
_COLD_VALUES = 12_000_000  # read between layers, as weights are


class Layers:
    """The caches of all layers, and one step's queries."""

    def __init__(self, num_sequences: int, context: int) -> None:
        blocks = -(-context // BLOCK)
        room = num_sequences * blocks + 1
        shape = (KV_HEADS, room, BLOCK, DIM)
        self.caches = [(torch.randn(shape), torch.randn(shape)) for _ in range(LAYERS)]
        self.cold = torch.randn(_COLD_VALUES).chunk(LAYERS)
        tables = torch.arange(1, room).view(num_sequences, blocks)
        heads = torch.arange(KV_HEADS)[:, None] * room
        self.by_head = tables.flatten()
        self.group = Group(
            num_sequences=num_sequences,
            num_queries=2,
            num_blocks=blocks,
            rows=None,
            blocks=(tables[:, None] + heads).flatten(),
            first_block=None,
            masks={None: torch.zeros(num_sequences, 1, 2, 1, blocks * BLOCK)},
        )
        self.queries = torch.randn(num_sequences * 2, KV_HEADS * PER_KV, DIM)

    def by_sequence_pass(self, keys: Tensor, values: Tensor) -> Tensor:
        return attend_group(self.queries, keys, values, self.group, None)

    def by_head_pass(self, keys: Tensor, values: Tensor) -> Tensor:
        """The same, with the copy in the other order."""
        s, length = self.group.num_sequences, self.group.num_blocks * BLOCK
        keys, values = (
            each.index_select(1, self.by_head).view(-1, length, DIM) for each in (keys, values)
        )
        folded = self.queries.view(s, 2, KV_HEADS, PER_KV, DIM).permute(2, 0, 1, 3, 4)
        scores = torch.bmm(folded.reshape(-1, 2 * PER_KV, DIM), keys.transpose(1, 2)).float()
        scores.view(KV_HEADS, s, 2, PER_KV, length).add_(self.group.masks[None][:, 0])
        weights = torch.softmax(scores, -1)
        out = torch.bmm(weights[..., :128], values[:, :128])
        for at in range(128, length, 128):
            out.baddbmm_(weights[..., at : at + 128], values[:, at : at + 128])
        out = out.view(KV_HEADS, s, 2, PER_KV, DIM).permute(1, 2, 0, 3, 4)
        return out.reshape(s * 2, KV_HEADS * PER_KV * DIM)

    def seconds(self, one: Callable[[Tensor, Tensor], Tensor]) -> float:
        total = 0.0
        for cold, (keys, values) in zip(self.cold, self.caches, strict=True):
            cold.sum()
            start = time.perf_counter()
            one(keys, values)
            total += time.perf_counter() - start
        return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--context", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    layers = Layers(args.sequences, args.context)
    first = layers.caches[0]
    assert torch.equal(layers.by_head_pass(*first), layers.by_sequence_pass(*first))
    results: dict[str, list[float]] = {"by head": [], "by sequence": []}
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        times: dict[str, list[float]] = {name: [] for name in results}
        for _ in range(_PASSES):
            times["by head"].append(layers.seconds(layers.by_head_pass))
            times["by sequence"].append(layers.seconds(layers.by_sequence_pass))
        for name, each in times.items():
            results[name].append(median(each) * 1e3)
        if not args.json:
            print("   ".join(f"{name} {each[-1]:5.1f} ms" for name, each in results.items()))
    by_head = ratio(results["by head"], results["by sequence"])
    if args.json:
        print(json.dumps({"machine": machine(), "ms": results, "ratio": by_head}))
    else:
        worst = max(a / b for a, b in zip(*results.values(), strict=True))
        print(
            f"by head / by sequence: {ratio_text(by_head)}, at most {worst:.2f}, "
            f"n = {len(results['by head'])} · {machine_line()}"
        )


if __name__ == "__main__":
    main()

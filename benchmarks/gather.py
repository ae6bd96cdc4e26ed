"""In which order should attention copy the keys of several sequences together?

    python benchmarks/gather.py [--sequences 4] [--context 320] [--seconds 60] [--json]

The copy is made by all threads and then read by all threads. By head, (heads, sequences, keys), a
thread reads part of what another one wrote; by sequence, (sequences, heads, keys), what it wrote
itself. While cores share a cache that hardly matters; when they do not, what another core wrote is
slow to come by. A virtual machine can change from the one to the other at any moment, so both
orders take turns: every line is one pass over 30 layers, the median of 20; the last line sums up.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from arms import machine, ratio
from outdraft.engine.models.attention import attend
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
        return attend(self.queries, keys, values, self.group, None)

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
    found: dict[str, list[float]] = {"by head": [], "by sequence": []}
    end = time.monotonic() + args.seconds
    while time.monotonic() < end:
        times: dict[str, list[float]] = {name: [] for name in found}
        for _ in range(_PASSES):
            times["by head"].append(layers.seconds(layers.by_head_pass))
            times["by sequence"].append(layers.seconds(layers.by_sequence_pass))
        for name, each in times.items():
            found[name].append(median(each) * 1e3)
        if not args.json:
            print("   ".join(f"{name} {each[-1]:5.1f} ms" for name, each in found.items()))
    middle, low, high = ratio(found["by head"], found["by sequence"])
    if args.json:
        print(json.dumps({"machine": machine(), "ms": found, "ratio": [middle, low, high]}))
    else:
        worst = max(a / b for a, b in zip(*found.values(), strict=True))
        print(
            f"by head / by sequence: {middle:.2f} [{low:.2f}, {high:.2f}], at most {worst:.2f}, "
            f"n = {len(found['by head'])} · " + " · ".join(f"{k} {v}" for k, v in machine().items())
        )


if __name__ == "__main__":
    main()

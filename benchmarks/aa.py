"""A server against itself, again and again: does the interval cover 1, is nothing ever decided?

    python benchmarks/aa.py [--repeats 20] [--blocks 8] [--block 6] [--tokens 16] [--concurrency 2]

Starts `outdraft serve` once and runs `compare` of its address with itself, each time with another
seed. Every comparison runs to its end: stopping early is for `outdraft compare`.
"""

from __future__ import annotations

import argparse
import time

from arms import machine_line
from disconnects import Server
from outdraft.decide.verdict import DONT_SHIP, SHIP
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.compare import compare
from outdraft.measure.comparison import ComparisonSettings
from outdraft.workload.sets import built_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--block", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--concurrency", type=int, default=2)
    parser.add_argument("--method", default="off")
    args = parser.parse_args()
    server = Server("--method", args.method, "--threads", "2")
    url = server.address.url
    print(machine_line(), flush=True)
    covered = decided = 0
    try:
        for seed in range(args.repeats):
            start = time.perf_counter()
            settings = ComparisonSettings(
                max_requests=args.blocks * args.block,
                block_size=args.block,
                concurrency=args.concurrency,
                max_tokens=args.tokens,
                seed=seed,
                num_looks=1,
            )
            comparison = compare(Endpoint(url), Endpoint(url), built_in(), settings)
            assert comparison.evidence is not None
            assert comparison.verdict is not None
            ratio = comparison.evidence.e2e
            assert ratio is not None
            covers = ratio.low is not None and ratio.high is not None
            covers = covers and (ratio.low or 2.0) <= 1.0 <= (ratio.high or 0.0)
            covered += covers
            decided += comparison.verdict.decision in (SHIP, DONT_SHIP)
            print(
                f"  seed {seed:2}: e2e {ratio.estimate:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] "
                f"{'covers 1' if covers else 'misses 1'} · {comparison.verdict.decision} · "
                f"{time.perf_counter() - start:.0f} s",
                flush=True,
            )
    finally:
        server.end()
    print(f"{covered} of {args.repeats} intervals cover 1; {decided} decisions")


if __name__ == "__main__":
    main()

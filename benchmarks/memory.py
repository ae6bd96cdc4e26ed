"""Whether an arm profits from answers it has written before, on prompts that come again.

    python benchmarks/memory.py --prompts twenty.jsonl
    python benchmarks/memory.py --prompts twenty.jsonl --keep-memory

Every round sends all prompts once, in blocks, as `outdraft tune` would. Accepted draft tokens per
token are compared between the first and the last third of the rounds, on the same prompts: they do
not depend on how busy the machine is. The interval is of the difference, drawn over prompts.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np

from outdraft.cli.main import find_command
from outdraft.errors import OutdraftError
from outdraft.records import Record
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Failure
from outdraft.tune.run import plan_run
from outdraft.tune.settings import RunSettings
from outdraft.workload.plan import Blocks, plan_requests

_DRAWS = 10_000


def main() -> None:
    args = options()
    flags = ["--target", args.target, "--prompts", args.prompts, "--methods", args.method,
             "--k", str(args.k), "--concurrency", "1", "--max-tokens", str(args.tokens),
             "--threads", str(args.threads), *["--keep-memory"][: args.keep_memory]]  # fmt: skip
    plan = plan_run(RunSettings.from_options(find_command("tune").parse(flags)))
    load, arm, prompts = plan.search.loads[0], plan.search.arms[0], plan.settings.prompts
    requests = plan_requests(
        args.rounds * list(prompts), mix=((0.0, 1.0),), seed=0, max_tokens=args.tokens
    )
    blocks = Blocks(requests, size=args.block, seed=0)
    records: list[Record] = []
    with (
        tempfile.TemporaryDirectory() as logs,
        replace(plan, blocks={load.name: blocks}).lab(Path(logs)) as lab,
    ):
        for number in range(blocks.count):
            found = lab.measure(load, arm, number)
            if isinstance(found, Failure):
                raise OutdraftError(found.reason)
            records += found.records
    third = len(records) // 3
    print(f"{name_of(arm)}, {len(prompts)} prompts, {len(records)} requests in blocks of "
          f"{args.block}{', memory kept' if args.keep_memory else ''}")  # fmt: skip
    parts = [records[:third], records[third : 2 * third], records[-third:]]
    for name, part in zip(("first", "middle", "last"), parts, strict=True):
        rounds = sum(each.acceptance.num_drafts for each in part if each.acceptance)
        accepted, tokens = (sum(column) for column in zip(*map(counts, part), strict=True))
        print(f"  {name:6} third: {accepted / tokens:.4f} accepted a token, {rounds} rounds")
    low, high = interval(parts[0], parts[-1])
    print(f"  last - first: [{low:+.4f}, {high:+.4f}] (95 %, over {len(prompts)} prompts)")


def counts(record: Record) -> tuple[int, int]:
    """Accepted draft tokens, and tokens of the answer."""
    accepted = record.acceptance.num_accepted_tokens if record.acceptance else 0
    return accepted, record.completion_tokens or 0


def interval(first: list[Record], last: list[Record]) -> tuple[float, float]:
    """Of the last third's share less the first's."""
    sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4))
    for at, part in ((0, first), (2, last)):
        for record in part:
            sums[record.prompt_id][at : at + 2] += counts(record)
    table = np.array(list(sums.values()))
    drawn = np.random.default_rng(0).integers(len(table), size=(_DRAWS, len(table)))
    totals = table[drawn].sum(axis=1)
    low, high = np.quantile(
        totals[:, 2] / totals[:, 3] - totals[:, 0] / totals[:, 1], (0.025, 0.975)
    )
    return float(low), float(high)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--method", default="suffix")
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=6, help="times that every prompt is sent")
    parser.add_argument("--block", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep-memory", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except OutdraftError as error:
        sys.exit(str(error))

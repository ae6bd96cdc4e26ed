"""Errors of predictions, on sweeps that `benchmarks/tune.py` has measured. Measures nothing itself.

    python benchmarks/predict.py --out out/tune

Every two blocks of a sweep in turn are taken as the profile: off, and each proposer at its longest
draft. The predictions for all arms are compared with the whole sweep. Errors have three parts, as
in `tune/belief.py`: of all arms (other prompts, another moment), of a proposer, and of an arm
beside the others of its proposer.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from math import exp, log, sqrt

from outdraft.errors import OptionError, OutdraftError
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import by_proposer, name_of
from outdraft.tune.journal import Block, Journal
from outdraft.tune.prediction import predict
from tune import CLOSE, WORKLOADS, Workload, folder_of, options, plan_of, workload_of
from tune_sweep import SWEEP, geometric

_PROFILE = 2  # blocks


def errors_of(arms: Sequence[Speculation], journal: Journal, first: int) -> dict[str, float]:
    """Name of an arm → logarithm of predicted by measured."""

    def blocks(arm: Speculation) -> list[Block]:
        return [each for each in journal.of(SWEEP, name_of(arm))
                if first <= each.block < first + _PROFILE]  # fmt: skip

    longest = [members[-1] for members in by_proposer(arms).values()]
    predicted = predict(arms, blocks(OFF), {name_of(arm): blocks(arm) for arm in longest}, "e2e")
    errors = {}
    for arm in arms:
        true = geometric(journal, SWEEP, OFF, arm)
        if true is not None and name_of(arm) in predicted:
            errors[name_of(arm)] = log(predicted[name_of(arm)] / true.estimate)
    return errors


def parts_of(
    errors: Mapping[str, float], arms: Sequence[Speculation]
) -> tuple[float, list[float], list[float]]:
    """Of all, of each proposer beside all, of each arm beside its proposer."""
    whole = _mean(list(errors.values()))
    families = [
        [errors[name_of(arm)] for arm in members if name_of(arm) in errors]
        for members in by_proposer(arms).values()
    ]
    families = [each for each in families if each]
    return (
        whole,
        [_mean(each) - whole for each in families],
        [error - _mean(each) for each in families for error in each],
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _spread(values: Sequence[float]) -> float:
    return sqrt(_mean([each**2 for each in values]))


def main() -> None:
    args = options(__doc__.split("\n")[0]).parse_args()
    rows: list[tuple[float, list[float], list[float]]] = []
    near = total = 0
    for workload in map(workload_of, args.workload or WORKLOADS):
        arms, profiles = _read(workload, args)
        for errors in profiles:
            rows.append(parts_of(errors, arms))
            near += sum(abs(exp(each) - 1) <= CLOSE for each in errors.values())
            total += len(errors)
            print(f"{workload.name}: all {rows[-1][0]:+.3f}, proposers {_spread(rows[-1][1]):.3f}, "
                  f"arms {_spread(rows[-1][2]):.3f}, n={len(errors)}")  # fmt: skip
    print(f"within 15 %: {near} of {total} ({100 * near / total:.0f} %)")
    parts = {
        "all": [each[0] for each in rows],
        "proposers": [error for each in rows for error in each[1]],
        "arms": [error for each in rows for error in each[2]],
    }
    print("spread: " + ", ".join(f"{name} {_spread(each):.3f}" for name, each in parts.items()))


def _read(
    workload: Workload, args: Namespace
) -> tuple[Sequence[Speculation], list[dict[str, float]]]:
    plan = plan_of(workload, args, 1.0)
    arms = plan.search.arms
    num_blocks = workload.num_blocks(args.requests)
    # Nothing is measured here, so the machine and the versions may be others.
    options = plan.settings.measuring_options
    names = [name_of(arm) for arm in (OFF, *arms)]
    header = {"arms": names, "blocks": num_blocks, **options}
    path = folder_of(workload, args.out) / "sweep.jsonl"
    if not path.exists():
        raise OptionError(f"{path} is not there; measure with benchmarks/tune.py first")
    with Journal(path, header) as journal:
        starts = range(0, num_blocks - _PROFILE + 1, _PROFILE)
        return arms, [errors_of(arms, journal, first) for first in starts]


if __name__ == "__main__":
    try:
        main()
    except OutdraftError as error:
        sys.exit(str(error))

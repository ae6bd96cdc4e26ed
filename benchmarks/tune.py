"""Does `outdraft tune` find the best arm, with few requests, and are its predictions right?

    python benchmarks/tune.py                               # three workloads, about 45 minutes
    python benchmarks/tune.py --resume                      # goes on after a kill
    python benchmarks/tune.py --workload code:0:1 --json out/tune.json

A workload is categories:temperature:concurrency. For each one on outdraft's own engine:

- the sweep: every arm that tune considers, and off, over the blocks of requests that tune draws,
  in a new order each time. A speedup is the geometric mean over the requests of off's time by the
  arm's, from end to end; its interval takes blocks as the units;
- tune with the code of the command and engines of its own. Its budget is a little less than a third
  of the sweep's time, because arms that race are quicker than the average one (or --budget); starts
  of engines count in neither. It sends the first of the same requests. Its pick is the arm that it
  calls the best, or off where it says DON'T SHIP;
- the best of the sweep beside tune's pick, where they differ, in three more rounds: the best of
  many arms was partly lucky in the sweep, and here it is not. Each round has engines of its own:
  an engine keeps for its whole life what luck it had with memory when it started.

Requests are those that were measured; each engine's first one, which proves that it speculates, is
not among them, neither in tune nor in the sweep. Everything measured is in journals under --out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

from arms import machine
from outdraft.cli.main import find_command
from outdraft.decide.verdict import DONT_SHIP
from outdraft.errors import OptionError, OutdraftError
from outdraft.measure.evidence import ratio_of
from outdraft.report.tables import ratio_text
from outdraft.speculation import OFF
from outdraft.stats.percentiles import percentile
from outdraft.stats.ratios import MIN_BLOCKS, Ratio
from outdraft.text_table import align_columns
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Journal
from outdraft.tune.lab import Lab
from outdraft.tune.outcome import make_results
from outdraft.tune.race import Standing
from outdraft.tune.results import Results
from outdraft.tune.run import RunPlan, plan_run
from outdraft.tune.search import Search
from outdraft.tune.settings import RunSettings
from outdraft.whole_file import write_json
from outdraft.workload.plan import Blocks
from tune_sweep import (
    CONFIRM,
    SWEEP,
    Part,
    geometric,
    measure_all,
    records_of,
    say,
    starts_untimed,
    without_start,
)

WORKLOADS = ("code:0:1", "chat+qa:0.7:1", "summarization+extraction:0:4")
_LESS = 0.92  # of a third of the time: requests must be no more than a third either
NEAR, FEW, CLOSE = 0.03, 1 / 3, 0.15  # of the best; of the requests; of what was measured


@dataclass(frozen=True)
class Workload:
    name: str
    categories: tuple[str, ...]
    temperature: str
    concurrency: int

    @property
    def block(self) -> int:
        """Requests of one arm in a row: every slot is busy."""
        return max(4, self.concurrency)

    def num_blocks(self, num_requests: int) -> int:
        """For so many requests an arm, or as many as an interval needs."""
        return max(-(-num_requests // self.block), MIN_BLOCKS)


@dataclass(frozen=True)
class WorkloadResult:
    """What the sweep and tune gave on one workload."""

    workload: str
    num_arms: int  # off is one
    num_per_arm: int  # requests
    best: str
    pick: str
    decision: str
    speedups: Mapping[str, Ratio]  # of the sweep; geometric means
    medians: Mapping[str, Ratio]
    lead: Ratio | None  # the pick over the best in the sweep; None: they are the same
    confirmed: tuple[Ratio, ...]  # the same, measured again with other engines each time
    predicted: Mapping[str, float]  # at the end of tune
    forecast: Mapping[str, float]  # before the race
    profiled: tuple[str, ...]  # arms that the predictions were made from
    budget_s: float
    tune_s: float
    sweep_s: float
    num_tune: int  # requests
    num_sweep: int
    failed: Mapping[str, str]
    num_unfit: int  # blocks that are left out: the client was not fit to measure

    @property
    def again(self) -> float | None:
        logs = [log(each.estimate) for each in self.confirmed]
        return exp(sum(logs) / len(logs)) if logs else None

    @property
    def errors(self) -> dict[str, float]:
        """Arm → predicted / measured - 1."""
        return self.errors_of(self.predicted)

    def errors_of(self, predicted: Mapping[str, float]) -> dict[str, float]:
        both = predicted.keys() & self.speedups.keys()
        return {name: predicted[name] / self.speedups[name].estimate - 1 for name in both}


def workload_of(text: str) -> Workload:
    try:
        categories, temperature, concurrency = text.split(":")
        return Workload(text, tuple(categories.split("+")), temperature, int(concurrency))
    except ValueError:
        raise OptionError(f"--workload {text!r}: write e.g. chat+qa:0.7:1") from None


def folder_of(workload: Workload, out: str) -> Path:
    return Path(out) / "".join(c if c.isalnum() or c in "+." else "-" for c in workload.name)


def plan_of(workload: Workload, args: argparse.Namespace, budget_s: float) -> RunPlan:
    """As the command would make it."""
    flags = ["--target", args.target, "--k", args.k, "--temperature", workload.temperature,
             "--concurrency", str(workload.concurrency), "--max-tokens", str(args.tokens),
             "--draft-quantization", args.draft_quantization, "--budget", f"{budget_s:.1f}s",
             "--seed", str(args.seed), "--block", str(workload.block)]  # fmt: skip
    flags += [word for each in workload.categories for word in ("--category", each)]
    flags += [word for each in args.draft or () for word in ("--draft", each)]
    for flag, value in (("--methods", args.methods), ("--threads", args.threads)):
        flags += [] if value is None else [flag, str(value)]
    return plan_run(RunSettings.from_options(find_command("tune").parse(flags)))


def engines(plan: RunPlan, blocks: Mapping[str, Blocks], logs: Path) -> Lab:
    return replace(plan, blocks=blocks).lab(logs)


# ---------------------------------------------------------------- measuring


def run_tune(plan: RunPlan, folder: Path) -> tuple[Results, Standing]:
    with (
        Journal(folder / "journal.jsonl", plan.header) as journal,
        plan.lab(folder / "logs") as lab,
    ):
        # The schedule is no part of the sweep.
        settings = replace(plan.search, schedule_methods=())
        search = Search(settings, journal, without_start(lab), prepare=starts_untimed(lab))
        outcomes, schedule = search.run()
        results = make_results(plan.context, settings, outcomes, schedule, journal)
        return results, outcomes[0].standing


def run_workload(workload: Workload, args: argparse.Namespace) -> WorkloadResult:
    folder = folder_of(workload, args.out)
    part = Part(workload.concurrency, part=SWEEP)
    plan = plan_of(workload, args, 1.0)
    arms = (OFF, *plan.search.arms)
    num_blocks, confirming = (workload.num_blocks(n) for n in (args.requests, args.confirm))
    header = {"arms": [name_of(arm) for arm in arms], "blocks": num_blocks, **plan.header}
    requests = plan.blocks[plan.search.loads[0].name]
    say(f"{workload.name}: {len(arms)} arms, {num_blocks * workload.block} requests each")
    with Journal(folder / "sweep.jsonl", header) as journal:
        with engines(plan, {SWEEP: requests}, folder / "logs") as lab:
            measure_all(part, arms, num_blocks, lab, journal)
        speedups = {name_of(arm): ratio for arm in arms
                    if (ratio := geometric(journal, SWEEP, OFF, arm)) is not None}  # fmt: skip
        if name_of(OFF) not in speedups:
            raise OptionError(f"{workload.name}: off was not measured; see {folder}")
        sweep_s = journal.elapsed_s(SWEEP)
        budget_s = args.budget or _LESS * sweep_s * FEW
        say(f"  tune, with {budget_s:.0f} s")
        results, standing = run_tune(plan_of(workload, args, budget_s), folder / "tune")
        load = results.loads[0]
        decision = "no verdict" if load.verdict is None else load.verdict.decision
        pick = load.best if load.best is not None and decision != DONT_SHIP else name_of(OFF)
        if pick not in speedups:
            raise OptionError(f"{workload.name}: {pick} was not measured in the sweep")
        best = max(speedups, key=lambda name: speedups[name].estimate)
        named = {name_of(arm): arm for arm in arms}
        # By the pick's name: rounds of another pick were at another time and pair with nothing.
        rounds = [Part(workload.concurrency, part=f"{each}, {pick}") for each in CONFIRM]
        for each in rounds if args.confirm and pick != best else ():
            with engines(plan, {each.name: requests}, folder / "logs") as lab:
                measure_all(each, (named[best], named[pick]), confirming, lab, journal)
        confirmed = [geometric(journal, each.name, named[best], named[pick]) for each in rounds]
        off = records_of(journal, SWEEP, OFF)
        medians = {
            name: ratio_of("e2e", off, records_of(journal, SWEEP, named[name]), level=0.95)
            for name in speedups
        }
        return WorkloadResult(
            workload=workload.name,
            num_arms=len(arms),
            num_per_arm=num_blocks * workload.block,
            best=best,
            pick=pick,
            decision=decision,
            speedups=speedups,
            medians={name: each for name, each in medians.items() if each is not None},
            lead=None if pick == best else geometric(journal, SWEEP, named[best], named[pick]),
            confirmed=tuple(each for each in confirmed if each is not None and pick != best),
            predicted={arm.name: arm.predicted for arm in load.arms if arm.predicted is not None},
            forecast=standing.forecast,
            profiled=standing.calibrated,
            budget_s=budget_s,
            tune_s=results.duration_s,
            sweep_s=sweep_s,
            num_tune=results.num_requests,
            num_sweep=sum(len(each.records) for each in journal.blocks.values()
                          if each.load == SWEEP),
            failed={name: each.reason for (_, name), each in journal.failures.items()},
            num_unfit=sum(bool(each.problems) for each in journal.blocks.values()),
        )  # fmt: skip


# ---------------------------------------------------------------- what it says


def report(result: WorkloadResult) -> str:
    rows = [("arm", "sweep over off", "median", "n", "predicted", "off by")]
    errors = result.errors
    for name in sorted(result.speedups, key=lambda each: -result.speedups[each].estimate):
        ratio, median = result.speedups[name], result.medians.get(name)
        predicted = result.predicted.get(name)
        rows.append((
            f"{name}{' *' if name == result.pick else ''}",
            ratio_text(ratio),
            "" if median is None else f"{median.estimate:.2f}x",
            str(ratio.num_pairs),
            "" if predicted is None else f"{predicted:.2f}x",
            "" if name not in errors else f"{100 * errors[name]:+.0f} %",
        ))  # fmt: skip
    best, picked = result.speedups[result.best], result.speedups[result.pick]
    lines = [f"{result.workload} · {result.num_arms} arms · {result.num_per_arm} requests each",
             align_columns(rows), "* tune's pick"]  # fmt: skip
    lines += [f"failed: {name}: {reason}" for name, reason in result.failed.items()]
    if result.num_unfit:
        lines.append(f"{result.num_unfit} blocks are left out: the client was not fit to measure")
    lines.append(f"best of the sweep: {result.best} {ratio_text(best)}")
    lines.append(f"tune: {result.pick} {ratio_text(picked)} in the sweep · {result.decision} · "
                 f"{result.tune_s:.0f} s of {result.budget_s:.0f} s")  # fmt: skip
    lines.append(f"pick by best: {_lead_text(result.lead)}")
    lines += [f"  measured again: {_lead_text(each)}" for each in result.confirmed]
    if result.again is not None:
        lines.append(f"  together: {result.again:.3f}")
    lines.append(f"requests: tune {result.num_tune}, sweep {result.num_sweep}: "
                 f"{result.num_tune / result.num_sweep:.2f}")  # fmt: skip
    lines.append(f"predictions within 15 %: {_within(errors.values())}; without the arms they were "
                 f"made from {_within(_unprofiled(result))}")  # fmt: skip
    lines.append(f"  before the race: {_within(result.errors_of(result.forecast).values())}")
    worst = sorted(errors, key=lambda each: -abs(errors[each]))[:3]
    lines.append("  farthest off: " + ", ".join(f"{each} {100 * errors[each]:+.0f} %"
                                                for each in worst))  # fmt: skip
    return "\n".join(lines)


def _lead_text(lead: Ratio | None) -> str:
    if lead is None:
        return "1, they are the same"
    interval = "" if lead.low is None else f" [{lead.low:.3f}, {lead.high:.3f}]"
    return f"{lead.estimate:.3f}{interval}, n={lead.num_pairs} in {lead.num_blocks} blocks"


def _unprofiled(result: WorkloadResult) -> list[float]:
    return [each for name, each in result.errors.items() if name not in result.profiled]


def _within(errors: Sequence[float] | Any) -> str:
    all_of = [abs(each) for each in errors]
    if not all_of:
        return "none to judge"
    num = sum(each <= CLOSE for each in all_of)
    median = 100 * percentile(all_of, 0.5)
    return f"{num} of {len(all_of)} ({100 * num / len(all_of):.0f} %, median {median:.1f} %)"


def summary(measured: Sequence[WorkloadResult]) -> str:
    near = [each.lead is None or each.lead.estimate >= 1 - NEAR for each in measured]
    fresh = [each.again >= 1 - NEAR if each.again is not None else ok
             for each, ok in zip(measured, near, strict=True)]  # fmt: skip
    few = [each.num_tune <= FEW * each.num_sweep for each in measured]
    total = len(measured)
    is_confirmed = any(each.confirmed for each in measured)
    again = f" ({sum(fresh)} of {total} measured again)" if is_confirmed else ""
    at_first = [error for each in measured for error in each.errors_of(each.forecast).values()]
    return "\n".join((
        f"pick within 3 % of the best of the sweep: {sum(near)} of {total} workloads{again}",
        f"at most a third of its requests: {sum(few)} of {total} workloads",
        "predictions within 15 %: "
        f"{_within([error for each in measured for error in each.errors.values()])}; before the "
        f"race {_within(at_first)}",
    ))  # fmt: skip


def options(description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workload", action="append", help=f"default: {', '.join(WORKLOADS)}")
    parser.add_argument("--target", default="smollm2-135m")
    parser.add_argument("--draft", action="append")
    parser.add_argument("--methods", help="default: all")
    parser.add_argument("--k", default="2,4,6")
    parser.add_argument("--draft-quantization", default="none,int8")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--requests", type=int, default=24, help="of each arm in the sweep")
    parser.add_argument(
        "--confirm", type=int, default=24, help="of the pick and the best in each round; 0: none"
    )
    parser.add_argument("--budget", type=float, help="of tune, in seconds")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="out/tune")
    return parser


def main() -> None:
    parser = options(__doc__.split("\n")[0])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    workloads = [workload_of(each) for each in args.workload or WORKLOADS]
    if any(Path(args.out).rglob("*.jsonl")) and not args.resume:
        raise OptionError(f"{args.out} holds a run; give --resume to go on, or another --out")
    hardware = machine()
    print(" · ".join(f"{key} {value}" for key, value in hardware.items()), flush=True)
    measured = []
    for workload in workloads:
        measured.append(run_workload(workload, args))
        print(f"\n{report(measured[-1])}", flush=True)
        if args.json:
            runs = [{**asdict(each), "errors": each.errors} for each in measured]
            write_json(Path(args.json), {"machine": hardware, "settings": vars(args),
                                         "workloads": runs})  # fmt: skip
    print(f"\n{summary(measured)}")


if __name__ == "__main__":
    try:
        main()
    except OutdraftError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted; go on with --resume")

"""Is the verdict of `tune` as sure as it says, with everything that it chooses on the way?

    python benchmarks/races.py [--races 1000] [--processes 2] [--only equal,far] [--json FILE]

Whole searches of the real code (`tune/search.py`) on made-up engines with known speedups and a
clock of their own: profile, race, final, two loads, the budget of `make tune`. Prompts differ in
what they gain, by category and each by itself; requests have heavy-tailed noise and one in a
hundred takes three times as long; a block of an arm has noise that is common to its requests.

covers      the final interval holds the true speedup of the arm that it is about
chosen      how much better the winner looked in the race than it is: the price of choosing
final       the same in the final
false       SHIP where speculation does not pay, or SHIP FOR a category for which it does not
best        true speedup of the chosen arm over that of the best one
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np

from arms import machine_line
from outdraft.decide.verdict import DONT_SHIP, SHIP, SHIP_FOR, Verdict
from outdraft.records import Record
from outdraft.speculation import Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import FINAL, Load, name_of
from outdraft.tune.journal import Block, Journal
from outdraft.tune.outcome import LoadOutcome
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.search import Search

LOADS = (Load(concurrency=1), Load(concurrency=4))
METHODS = ("ngram", "suffix", "draft_model", "eagle")
ARMS = tuple(
    Speculation(method, k=k, draft="draft" if method in METHODS[2:] else None)
    for method in METHODS
    for k in range(2, 9)
)
CATEGORIES = 8
START_S, REQUEST_S = 7.0, 2.9  # of an engine; of a request without speculation, alone
BUDGET_S = 580.0  # the default of `tune`
# Standard deviations, in logarithms, as recorded journals of `make tune` show them
OF_CATEGORY, OF_PROMPT, OF_ARM, OF_REQUEST = 0.15, 0.2, 0.05, 0.03
OF_BLOCK = {1: 0.02, 4: 0.06}  # by concurrency
# Speedups at the best draft length, by method; what is lost four at a time
TRUTHS: Mapping[str, tuple[float, ...]] = {
    "equal": (1.0, 1.0, 1.0, 1.0),
    "close": (1.02, 1.0, 1.04, 1.03),
    "loses": (0.97, 0.98, 0.9, 0.95),
    "far": (1.3, 1.5, 1.2, 2.2),
}
CROWDED = {1: 1.0, 4: 0.75}
BEST_K, LOST_BY_K = 5, 0.01  # a step away from the best draft length costs this, squared


@dataclass(frozen=True, slots=True)
class Engines:
    """Measures blocks of one made-up world."""

    scenario: str
    seed: int

    def truth(self, load: Load, arm: Speculation) -> float:
        """The logarithm of the speedup."""
        if arm.is_off:
            return 0.0
        best = TRUTHS[self.scenario][METHODS.index(arm.method)]
        crowded = CROWDED[load.concurrency or 1] if self.scenario in ("far",) else 1.0
        return math.log(best * crowded) - LOST_BY_K * (arm.k - BEST_K) ** 2 * (best != 1.0)

    def measure(self, load: Load, arm: Speculation, block: int) -> Block:
        concurrency = load.concurrency or 1
        chance = self._chance(load.name, name_of(arm), block)
        common = chance.normal(0, OF_BLOCK[concurrency])
        seconds = [
            REQUEST_S * concurrency**0.4 * math.exp(
                self._length(load, block, at) - self._gain(load, arm, block, at) + common
                + OF_REQUEST * chance.standard_t(3) + math.log(3) * (chance.random() < 0.01)
            )
            for at in range(_block_size(load))
        ]  # fmt: skip
        records = tuple(
            Record(f"{load.name} {block} {at}", f"category {self._category(load, block, at)}", 0.0,
                   name_of(arm), block, at, 0, sent_ns=0, first_ns=int(1e8),
                   last_ns=int(each * 1e9), completion_tokens=64)
            for at, each in enumerate(seconds)
        )  # fmt: skip
        start_s = START_S if block == 0 and not load.part and load == LOADS[0] else 0.0
        duration_s = sum(seconds) / concurrency + start_s
        return Block(load.name, name_of(arm), block, duration_s, records,
                     step_seconds={1: 0.035, 8: 0.036}, start_s=start_s)  # fmt: skip

    def _chance(self, *what: object) -> np.random.Generator:
        return np.random.default_rng([self.seed, *"/".join(map(str, what)).encode()])

    def _category(self, load: Load, block: int, at: int) -> int:
        """Each once in turn, in an order of chance."""
        turn, place = divmod(block * _block_size(load) + at, CATEGORIES)
        return int(self._chance("turn", load.name, turn).permutation(CATEGORIES)[place])

    def _length(self, load: Load, block: int, at: int) -> float:
        return float(self._chance("length", load.name, block, at).normal(0, 0.1))

    def _gain(self, load: Load, arm: Speculation, block: int, at: int) -> float:
        """Prompts gain differently, with all drafts alike and with each a little by itself."""
        if arm.is_off:
            return 0.0
        of_category = _of_category(self._category(load, block, at))
        of_prompt = self._chance("prompt", load.name, block, at).normal(0, OF_PROMPT)
        of_arm = self._chance("own", load.name, block, at, name_of(arm)).normal(0, OF_ARM)
        return self.truth(load, arm) + of_category + of_prompt + of_arm


def _block_size(load: Load) -> int:
    return max(2 if load.part == FINAL else 4, 2 * (load.concurrency or 1))


@dataclass(frozen=True, slots=True)
class Judged:
    """One load of one search."""

    load: str
    decision: str
    covers: bool | None  # None: no interval
    half_width: float | None
    raced: float | None  # logarithms: estimate in the race, over the truth
    final: float | None
    pays: bool  # truly
    is_false: bool  # ships what does not pay
    of_best: float  # true speedup of the chosen arm, over the best
    num_pairs: int


def search(scenario: str, budget_s: float, seed: int) -> list[Judged]:
    engines = Engines(scenario, seed)
    settings = SearchSettings(
        ARMS,
        LOADS,
        Rules(Objective(), fills_slots=True),
        budget_s,
        {LOADS[1].name: 1},
        keeps_engines=True,
        shares_process=True,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal(Path(folder) / "journal.jsonl", {}) as journal,
    ):
        outcomes, _ = Search(settings, journal, engines.measure).run()
    return [_judged(engines, *each) for each in zip(LOADS, outcomes, strict=True)]


def _judged(engines: Engines, load: Load, outcome: LoadOutcome) -> Judged:
    standing, result = outcome.standing, outcome.result
    best = standing.best
    assert best is not None
    truth = engines.truth(load, best)
    ratio = result.measured
    raced = standing.measured.get(name_of(best))
    most = max(engines.truth(load, arm) for arm in ARMS)
    has_interval = ratio is not None and ratio.low is not None and result.verdict is not None
    return Judged(
        load.name,
        "none" if result.verdict is None else result.verdict.decision,
        _covers(ratio, truth) if ratio is not None and has_interval else None,
        _half_width(ratio) if ratio is not None and has_interval else None,
        None if raced is None else math.log(raced.estimate) - truth,
        None if ratio is None or not has_interval else math.log(ratio.estimate) - truth,
        truth > 0,
        _is_false(result.verdict, truth),
        math.exp(truth - most),
        0 if ratio is None else ratio.num_pairs,
    )


def _is_false(verdict: Verdict | None, truth: float) -> bool:
    if verdict is None or verdict.decision not in (SHIP, SHIP_FOR):
        return False
    gains = [_of_category(int(each.split()[-1])) for each in verdict.ship_for] or [0.0]
    return any(truth + gain <= 0 for gain in gains)


def _of_category(category: int) -> float:
    """What a category gains more than others: a uniform spread of that standard deviation."""
    return OF_CATEGORY * (category - (CATEGORIES - 1) / 2) / (CATEGORIES / 12**0.5)


def _covers(ratio: Ratio, truth: float) -> bool:
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low <= math.exp(truth) <= ratio.high


def _half_width(ratio: Ratio) -> float:
    return math.log((ratio.high or 1) / (ratio.low or 1)) / 2


def report(scenario: str, judged: Sequence[Judged]) -> list[str]:
    lines = []
    for load in LOADS:
        own = [each for each in judged if each.load == load.name]
        held = [each.covers for each in own if each.covers is not None]
        decisions = Counter(each.decision for each in own)
        wrong = sum(each.is_false for each in own)
        wrong_off = sum(each.decision == DONT_SHIP and each.pays for each in own)
        widths = [each.half_width for each in own if each.half_width is not None]
        raced = [each.raced for each in own if each.raced is not None]
        final = [each.final for each in own if each.final is not None]
        lines.append(
            f"{scenario:6} {load.name}: covers {fmean(held or [math.nan]):6.1%} of {len(held)}, "
            f"half-width {median(widths or [math.nan]):.1%}, "
            f"pairs {median(each.num_pairs for each in own):.0f}; "
            f"chosen {_signed_mean(raced)}, final {_signed_mean(final)}; "
            f"false SHIP {wrong / len(own):.1%}, false DON'T SHIP {wrong_off / len(own):.1%}; "
            f"best {fmean(each.of_best for each in own):.3f}; "
            + ", ".join(f"{name} {num}" for name, num in decisions.most_common())
        )
    return lines


def _signed_mean(logarithms: Sequence[float]) -> str:
    """ "none": with one request at a time the profile chooses, and nothing is raced."""
    return f"{fmean(logarithms):+.1%}" if logarithms else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--races", type=int, default=200, help="of each scenario")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of each search")
    parser.add_argument("--only", help=f"of {', '.join(TRUTHS)}")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    start, every = time.perf_counter(), {}
    with ProcessPoolExecutor(args.processes) as pool:
        for scenario in args.only.split(",") if args.only else TRUTHS:
            races = pool.map(partial(search, scenario, args.budget), range(args.races), chunksize=5)
            every[scenario] = [each for one in races for each in one]
            print("\n".join(report(scenario, every[scenario])), flush=True)
    all_of = [each for own in every.values() for each in own]
    held = [each.covers for each in all_of if each.covers is not None]
    searches = [all_of[at : at + len(LOADS)] for at in range(0, len(all_of), len(LOADS))]
    wrong = sum(any(each.is_false for each in one) for one in searches)
    print(f"all: covers {fmean(held):.1%} of {len(held)}; {wrong / len(searches):.1%} of "
          f"{len(searches)} searches ship something that does not pay")  # fmt: skip
    print(f"{time.perf_counter() - start:.0f} s; {machine_line()}")
    if args.json:
        rows = {name: [[each.decision, each.covers, each.half_width] for each in own]
                for name, own in every.items()}  # fmt: skip
        Path(args.json).write_text(json.dumps(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

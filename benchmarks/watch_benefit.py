"""Is the net benefit that a watch finds the one that `compare` measures in the same minutes?

    python benchmarks/watch_benefit.py [--baseline tune-out] [--trials 1,2,5]

Servers with the real model: without speculation, and with `--canary-share 0.02` the shipped head,
n-grams, and method auto, which chooses between both and none in every round. In every trial the
traffic makes speculation pay more or less: prompts, temperature, requests at a time. `compare`
sends requests to the plain and the speculating server in alternating blocks, to the end, while both
are looked at every second. From the looks
follow (a) the plain server as the control, (b) the canary, (c) tune's costs with live acceptance,
(s) the same with the costs that the server measured at its start.
"agrees": the two intervals overlap. The last column is compare's records again, as seconds over all
tokens instead of a mean of the requests' ratios: this is what the sources estimate.
"""

from __future__ import annotations

import argparse
import json
import random
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.request import urlopen

from arms import machine_line
from disconnects import Server
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.compare import BASELINE, CANDIDATE, compare
from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.observe.counters import read_step_seconds
from outdraft.observe.reading import Growth, Reading, growth, reading_of
from outdraft.tune.results import results_from_json
from outdraft.watch.benefit.canary import canary_benefit
from outdraft.watch.benefit.control import control_benefit
from outdraft.watch.benefit.costs import Costs
from outdraft.watch.benefit.predicted import costs_benefit
from outdraft.watch.findings import Benefit
from outdraft.workload.sets import choose_prompts

HEAD = ("--draft", "smollm2-135m-eagle", "--draft-quantization", "int8")
SERVERS = {
    "off": ("--method", "off"),
    "eagle": ("--method", "eagle", *HEAD, "--k", "5", "--canary-share", "0.02"),
    "ngram": ("--method", "ngram", "--k", "8", "--canary-share", "0.02"),
    "auto": ("--method", "auto", *HEAD, "--canary-share", "0.02"),
}
PROPOSERS = {
    "eagle": "eagle smollm2-135m-eagle int8",
    "ngram": "ngram",
    "auto": "auto smollm2-135m-eagle int8",
}
SHARED = ("--enable-forget", "--max-num-waiting", "64")
EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Trial:
    name: str
    server: str
    concurrency: int
    blocks: int
    block: int
    tokens: int = 64
    temperature: float = 0.0
    categories: tuple[str, ...] = ()


TRIALS = (
    Trial("eagle, all prompts", "eagle", 1, 6, 4),
    Trial("eagle, code", "eagle", 1, 6, 4, categories=("code",)),
    Trial("eagle, temperature 1.5", "eagle", 1, 6, 4, temperature=1.5),
    Trial("n-grams, chat", "ngram", 1, 6, 4, categories=("chat",)),
    Trial("n-grams, extraction", "ngram", 1, 6, 4, categories=("extraction",)),
    Trial("eagle, 2 at a time", "eagle", 2, 6, 6),
    Trial("eagle, 4 at a time", "eagle", 4, 5, 10),
    Trial("n-grams, chat, 4 at a time", "ngram", 4, 5, 10, categories=("chat",)),
    Trial("eagle, temperature 1.5, 4 at a time", "eagle", 4, 5, 10, temperature=1.5),
    Trial("eagle, 7 at a time", "eagle", 7, 5, 14),
    Trial("auto, all prompts", "auto", 1, 6, 4),
    Trial("auto, temperature 1.5, 4 at a time", "auto", 4, 5, 10, temperature=1.5),
)


@contextmanager
def looking(urls: Sequence[str]) -> Iterator[dict[str, list[Growth]]]:
    """What each server does from one second to the next."""
    rows: dict[str, list[Growth]] = {url: [] for url in urls}
    before: dict[str, Reading] = {}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(EVERY_S):
            for url in urls:
                with urlopen(f"{url}/metrics", timeout=10) as page:
                    now = reading_of(page.read().decode(), time.time())
                if url in before:
                    rows[url].append(growth(before[url], now))
                before[url] = now

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield rows
    finally:
        is_over.set()
        thread.join()


def over_tokens(comparison: Comparison) -> float:
    """The speedup of seconds after the first token over all tokens, of requests that count."""
    paces = []
    for arm in (BASELINE, CANDIDATE):
        done = [each for each in comparison.of(arm) if each.ok and not each.is_warmup]
        timed = [(each.tpot_ns, each.completion_tokens or 1) for each in done if each.tpot_ns]
        tokens = sum(count - 1 for _, count in timed)
        paces.append(sum((pace or 0.0) * (count - 1) for pace, count in timed) / tokens)
    return float(paces[0] / paces[1])


def run_trial(
    trial: Trial, urls: dict[str, str], costs: Costs | None, seed: int
) -> dict[str, object]:
    prompts = choose_prompts("built-in", categories=trial.categories)
    settings = ComparisonSettings(
        max_requests=trial.blocks * trial.block,
        block_size=trial.block,
        concurrency=trial.concurrency,
        mix=((trial.temperature, 1.0),),
        max_tokens=trial.tokens,
        seed=seed,
        num_looks=1,
        salt=f"{random.SystemRandom().getrandbits(32):x}",
    )
    plain, own = urls["off"], urls[trial.server]
    started = time.monotonic()
    with looking((plain, own)) as rows:
        comparison = compare(Endpoint(plain), Endpoint(own), prompts, settings)
    evidence = comparison.evidence
    assert evidence is not None
    tpot = evidence.tpot
    assert tpot is not None
    fleet, at_start = {own: rows[own]}, costs_at_start(own)
    found = {
        "a": control_benefit(fleet, {plain: rows[plain]}),
        "b": canary_benefit(fleet),
        "c": None if costs is None else costs_benefit(costs, fleet),
        "s": None if at_start is None else costs_benefit(at_start, fleet),
    }
    return {
        "trial": trial.name,
        "seconds": time.monotonic() - started,
        "compare": (tpot.estimate, tpot.low, tpot.high),
        "over_tokens": over_tokens(comparison),
        "sources": {name: values_of(each) for name, each in found.items()},
        "slices_s": sum(
            seconds
            for each in rows[own]
            for (side, _), (_, seconds) in each.slices.items()
            if side == "plain"
        ),
    }


def values_of(benefit: Benefit | None) -> tuple[float, float | None, float | None] | None:
    return None if benefit is None else (benefit.estimate, benefit.low, benefit.high)


def line_of(done: dict[str, object]) -> str:
    low, high = done["compare"][1:]  # type: ignore[index]
    parts = []
    for values in done["sources"].values():  # type: ignore[attr-defined]
        if values is None or values[1] is None or low is None:
            parts.append(f"{'-' if values is None else format(values[0], '.2f'):>22}")
            continue
        word = "yes" if values[1] <= high and low <= values[2] else "NO"
        parts.append(f"{text_of(values):>18} {word:3}")
    words = f"{done['trial']:36} {text_of(done['compare']):18} {'  '.join(parts)}"
    return f"{words}  {done['over_tokens']:.2f}  {done['seconds']:.0f} s"


def text_of(values: object) -> str:
    estimate, low, high = values  # type: ignore[misc]
    return f"{estimate:.2f} [{low:.2f}, {high:.2f}]" if low is not None else f"{estimate:.2f}"


def costs_at_start(url: str) -> Costs | None:
    with urlopen(f"{url}/metrics", timeout=10) as page:
        return Costs.from_steps(read_step_seconds(reading_of(page.read().decode(), 0.0).page))


def read_costs(folder: str | None, server: str) -> Costs | None:
    if folder is None:
        return None
    results = results_from_json(json.loads((Path(folder) / "results.json").read_text()))
    return Costs.from_results(results, PROPOSERS[server])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--baseline", help="folder of a tuning run")
    parser.add_argument("--trials", default=",".join(str(n + 1) for n in range(len(TRIALS))))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of blocks")
    parser.add_argument("--limit-s", type=float, default=1e9, help="no trial begins after this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="JSON lines, one for each trial")
    args = parser.parse_args()
    started = time.monotonic()
    chosen = [TRIALS[int(each) - 1] for each in args.trials.split(",") if each]
    names = {"off", *(each.server for each in chosen)} if chosen else set()
    # Of equal servers the one that was started first is the slowest: off comes last, as in `tune`.
    servers = {name: Server(*SERVERS[name], *SHARED) for name in sorted(names)}
    print(machine_line(), flush=True)
    try:
        urls = {name: each.address.url for name, each in servers.items()}
        print(
            f"{'':36} {'compare':18} {'(a) control':22}  {'(b) canary':22}  "
            f"{'(c) costs':22}  (s) at the start",
            flush=True,
        )
        for number, trial in enumerate(chosen):
            if time.monotonic() - started > args.limit_s:
                print("the time is over", flush=True)
                break
            sized = replace(trial, blocks=max(round(trial.blocks * args.scale), 5))
            costs = read_costs(args.baseline, trial.server)
            done = run_trial(sized, urls, costs, args.seed + number)
            print(line_of(done), flush=True)
            if args.out:
                with Path(args.out).open("a") as file:
                    file.write(json.dumps(done) + "\n")
    finally:
        for each in servers.values():
            each.end()


if __name__ == "__main__":
    main()

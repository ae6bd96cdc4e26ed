"""What a step without drafts costs in an engine that could draft, over one of an engine without.

    python benchmarks/plain_steps.py [--rounds 40] [--concurrency 1,4] [--quantization none,int8]

Engines take turns, a few steps each, in one process. "after drafting": steps of the engine with a
head that come between drafting ones, as a canary's do. Medians over rounds of the ratio of a
round's median step, with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

from arms import machine_line, ratio, ratio_text, take_turns
from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine.draft_lengths import EVERYBODY

_STEPS = 8  # that are timed in each turn
_PROMPT = "Tell me about the history of the lighthouse, and what its keeper did all day long. "


def turn(engine: Engine, concurrency: int, *, mixed: bool) -> Callable[[int], float]:
    """Seconds of a plain step: the median of a turn. `mixed`: with a drafting step before each
    three. Every turn has texts of its own, so that contexts are alike."""
    params = SamplingParams(max_tokens=1000, ignore_eos=True)

    def run(index: int) -> float:
        ids = [engine.add_request(f"{each}. {_PROMPT}", params) for each in range(concurrency)]
        seconds: list[float] = []
        while len(seconds) < _STEPS:
            if mixed and len(seconds) % 3 == 0:
                engine.step()
            stats = engine.step(inverted=EVERYBODY).stats
            assert stats is not None
            if stats.is_decoding and stats.num_sequences == concurrency:
                seconds.append(stats.seconds)
        for request_id in ids:
            engine.abort(request_id)
        return statistics.median(seconds)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--concurrency", default="1,4")
    parser.add_argument("--quantization", default="none,int8")
    args = parser.parse_args()
    print(machine_line())
    for quantization in args.quantization.split(","):
        head = Speculation("eagle", draft="smollm2-135m-eagle", quantization="int8")
        draft = Speculation("draft_model", draft="smollm2-135m-draft", quantization="int8")
        engines = {
            name: load_engine("smollm2-135m", speculation, quantization=quantization)
            for name, speculation in (
                ("off", Speculation()),
                ("off again", Speculation()),
                ("draft_model", draft),
                ("eagle", head),
                ("eagle, after drafting", head),
            )
        }
        for concurrency in map(int, args.concurrency.split(",")):
            arms = {
                name: turn(engine, concurrency, mixed="after" in name)
                for name, engine in engines.items()
            }
            take_turns(arms, 2)
            results = take_turns(arms, args.rounds)
            base = results["off"]
            plain = f"off {statistics.median(base) * 1e3:.2f} ms"
            print(f"{quantization}, {concurrency} at a time: {plain}", flush=True)
            for name in [*arms][1:]:
                print(f"  {name:24} {ratio_text(ratio(results[name], base), 3)}")


if __name__ == "__main__":
    main()

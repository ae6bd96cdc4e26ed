"""`outdraft bench --quick`: how fast our engine reads and writes, by the length of a prompt."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median

import torch

from outdraft.cli.generation import load_engine, warm_up
from outdraft.cli.progress import show_loading, show_steps
from outdraft.engine.engine import Engine
from outdraft.engine.sequence import SamplingParams
from outdraft.engine.settings import engine_settings
from outdraft.errors import OptionError
from outdraft.measure.machine import describe_machine
from outdraft.measure.options import BENCH_OPTIONS, CLIENT_OPTIONS
from outdraft.options import refuse_given
from outdraft.speculation import OFF
from outdraft.text_table import align_columns
from outdraft.workload.options import ARRIVAL_OPTIONS, BENCH_LOAD_OPTIONS, LENGTH_OPTIONS
from outdraft.workload.sets import built_in

_NUM_WRITTEN = 32  # tokens after each prompt


@dataclass(frozen=True, slots=True)
class TokenRate:
    """Tokens a second over some runs."""

    median: float
    lowest: float
    highest: float

    def __str__(self) -> str:
        return f"{self.median:.1f} [{self.lowest:.1f}, {self.highest:.1f}]"


@dataclass(frozen=True, slots=True)
class LengthSpeeds:
    prompt_tokens: int
    reading: TokenRate
    writing: TokenRate
    written_tokens: int
    runs: int


def run_quick(args: argparse.Namespace) -> int:
    if args.url is not None:
        raise OptionError("--quick measures our own engine, without a server; leave the URL out")
    of_servers = (*BENCH_LOAD_OPTIONS, *CLIENT_OPTIONS, *ARRIVAL_OPTIONS, *LENGTH_OPTIONS,
                  *BENCH_OPTIONS)  # fmt: skip
    refuse_given(args, [each for each in of_servers if each.key != "json"], "with --quick")
    with show_loading() as shown:
        engine = load_engine(args.target, OFF, **engine_settings(args), progress=None, **shown)
    fitting = [each for each in args.lengths if each + _NUM_WRITTEN <= engine.max_context]
    for length in args.lengths:
        if length not in fitting:
            print(f"note: a prompt of {length} tokens leaves no room to write in a context of "
                  f"{engine.max_context}", file=sys.stderr)  # fmt: skip
    speeds = measure_lengths(engine, fitting, args.repetitions)
    threads = torch.get_num_threads()
    if args.json:
        settings = {"target": args.target, **engine_settings(args), "threads": threads,
                    "compiled": engine.is_compiled}  # fmt: skip
        print(json.dumps({**settings, **describe_machine(),
                          "lengths": [asdict(each) for each in speeds]}))  # fmt: skip
    else:
        print(_table(speeds))
        kernels = "compiled" if engine.is_compiled else "torch's"
        on = f"{args.device}, {threads} thread{'s' * (threads != 1)}, {kernels} kernels"
        print(f"{args.target}, dtype {args.dtype}, quantization {args.quantization}, {on}")
        print("speculation off, one text at a time; median [lowest, highest]")
    return 0


def measure_lengths(engine: Engine, lengths: Sequence[int], repetitions: int) -> list[LengthSpeeds]:
    """Lengths take turns, so that a machine that slows down slows all of them."""
    words = engine.tokenizer.encode("\n\n".join(each.text for each in built_in()))
    reading: dict[int, list[float]] = {length: [] for length in lengths}
    writing: dict[int, list[float]] = {length: [] for length in lengths}
    params = SamplingParams(max_tokens=_NUM_WRITTEN, ignore_eos=True)
    if lengths:
        warm_up(engine, words[: min(lengths)])
    with show_steps(repetitions * len(lengths)) as on_step:
        for number in range(repetitions):
            for length in lengths:
                on_step(f"{length} tokens, {number + 1} of {repetitions}")
                engine.forget()
                start = number * length % max(len(words) - length, 1)
                prompt = (words * (1 + length // len(words)))[start : start + length]
                [text] = engine.generate([prompt], params)
                assert text.ttft_s is not None
                assert text.tokens_per_s is not None
                reading[length].append(length / text.ttft_s)
                writing[length].append(text.tokens_per_s)
    return [
        LengthSpeeds(
            each, _token_rate(reading[each]), _token_rate(writing[each]), _NUM_WRITTEN, repetitions
        )
        for each in lengths
    ]


def _token_rate(values: Sequence[float]) -> TokenRate:
    return TokenRate(median(values), min(values), max(values))


def _table(speeds: Sequence[LengthSpeeds]) -> str:
    heads = ("prompt tokens", "read tokens/s", f"then {_NUM_WRITTEN} written tokens/s", "runs")
    rows = [
        (str(each.prompt_tokens), str(each.reading), str(each.writing), str(each.runs))
        for each in speeds
    ]
    return align_columns([heads, *rows])

"""`outdraft bench URL`: one server under one load."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outdraft.cli.load_options import LOAD, check_counts, endpoint_of, prompts_of, recording
from outdraft.cli.options import Option, add_options
from outdraft.errors import OptionError

if TYPE_CHECKING:
    from outdraft.workload.trace import Trace

_EXAMPLES = """\
examples:
  outdraft bench http://127.0.0.1:8000
  outdraft bench http://127.0.0.1:8000 --requests 200 --concurrency 16 --slo ttft=500,tpot=60
  outdraft bench http://127.0.0.1:8000 --rate 2 --burstiness 0.5 --temperature 0.0:60%,0.8:40%
  outdraft bench http://gpu-box:8000 --prompts sharegpt.json --out run.json
  outdraft bench http://gpu-box:8000 --replay yesterday.jsonl --replay-speed 2
"""

_REQUESTS = 64

_BENCH = (
    Option("--requests", "how many (default: 64, or the whole trace)", type=int, metavar="N"),
    Option("--rate", "requests a second, sent at their time however slow the server is",
           type=float, metavar="R"),
    Option("--burstiness", "with --rate: 1 is Poisson, less is burstier, inf is constant",
           default=1.0, type=float, metavar="B"),
    Option("--ramp-to", "with --rate: the rate at the end", type=float, metavar="R"),
    Option("--replay", "send at the times of this trace: JSONL or CSV with a timestamp each, and "
           "with its prompts if it has them", metavar="FILE"),
    Option("--replay-speed", "2 plays the trace twice as fast (1000: its unit is ms)",
           default=1.0, type=float, metavar="X"),
    Option("--warmup", "requests before those that count", default=4, type=int, metavar="N"),
    Option("--slo", "promised times in ms, for the goodput: ttft=200,tpot=50", metavar="LIMITS"),
    Option("--processes", "client processes", default=1, type=int, metavar="N"),
    Option("--out", "write every record to this file as JSON", metavar="FILE"),
    Option("--json", "print one JSON object, nothing else", is_switch=True),
)  # fmt: skip


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure one server under one load",
        usage="outdraft bench URL [options]",
        description="Measure one OpenAI-compatible server under one load: times per token and "
        "end to end, throughput, goodput, acceptance.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("url", metavar="URL", help="of the server")
    add_options(parser, "load", LOAD)
    add_options(parser, "bench", _BENCH)
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from outdraft.measure.summary import parse_slo, summarize
    from outdraft.measure.trial import run_trial
    from outdraft.report.tables import bench_table
    from outdraft.whole_file import write_json
    from outdraft.workload.plan import make_plan, spread
    from outdraft.workload.temperatures import parse_mix

    check_counts(args, "requests", "concurrency", "max_tokens", "processes")
    if args.warmup < 0:
        raise OptionError(f"--warmup must not be negative, got {args.warmup}")
    slo = None if args.slo is None else parse_slo(args.slo)
    mix = parse_mix(args.temperature)
    trace = None if args.replay is None else _trace(args)
    args.requests = (args.requests or _REQUESTS) if trace is None else len(trace.offsets_ns)
    prompts = prompts_of(args) if trace is None or trace.prompts is None else trace.prompts
    offsets = _offsets(args) if trace is None else list(trace.offsets_ns)
    endpoint = endpoint_of(args.url, args)
    chosen = spread(prompts, args.requests + args.warmup, args.seed)
    if trace is not None and trace.prompts is not None:  # each at its own time
        chosen[: args.requests] = trace.prompts
    plan = make_plan(
        chosen[: args.requests],
        mix=mix,
        seed=args.seed,
        max_tokens=args.max_tokens,
        offsets_ns=offsets,
    )
    warmup = make_plan(
        chosen[args.requests :], mix=mix, seed=args.seed + 1, max_tokens=args.max_tokens
    )
    load = {"concurrency": args.concurrency} if offsets is None else {
        "rate": args.rate, "burstiness": args.burstiness, "ramp_to": args.ramp_to
    }  # fmt: skip
    if trace is not None:
        load = {"replay": args.replay, "speed": args.replay_speed}
    with recording(args.requests + args.warmup, "bench", args.out) as sink:
        trial, quality = run_trial(
            endpoint,
            plan,
            arm="server",
            load=load | {"requests": args.requests, "seed": args.seed, "slo": slo},
            concurrency=args.concurrency if offsets is None else None,
            warmup=warmup,
            processes=args.processes,
            sink=sink,
        )
        if args.out is not None:
            write_json(Path(args.out), trial.to_json())
    summary = summarize(trial.records, slo, trial.server_metrics)
    if args.json:
        from dataclasses import asdict

        print(json.dumps({"valid": quality.is_valid, "problems": quality.problems,
                          "summary": asdict(summary),
                          "server": dict(trial.server_metrics)}))  # fmt: skip
    else:
        print(bench_table(summary, dict(trial.server_metrics)))
        for problem in quality.problems:
            print(f"note: {problem}")
        if not quality.is_valid:
            print("INVALID: these figures are not the server's")
    return 0 if quality.is_valid else 1


def _trace(args: argparse.Namespace) -> Trace:
    from outdraft.workload.trace import read_trace

    if args.rate is not None:
        raise OptionError("--rate and --replay both say when requests are sent; keep one")
    return read_trace(Path(args.replay), speed=args.replay_speed, at_most=args.requests)


def _offsets(args: argparse.Namespace) -> list[int] | None:
    from outdraft.workload import arrivals

    if args.rate is None:
        return None
    if args.ramp_to is not None:
        return arrivals.ramp(args.rate, args.ramp_to, args.requests)
    if args.burstiness == float("inf"):
        return arrivals.constant(args.rate, args.requests)
    return arrivals.gamma(args.rate, args.requests, args.seed, burstiness=args.burstiness)

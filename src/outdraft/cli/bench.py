"""`outdraft bench URL`: measures one server, under one load or under several."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from outdraft.cli.options import QUICK_OPTIONS
from outdraft.cli.progress import say_if_slow
from outdraft.cli.recording import show_and_journal
from outdraft.errors import OptionError
from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure.bench import Bench, BenchLoad, run_bench
from outdraft.measure.plateau import num_spare
from outdraft.measure.settings import describe_requests, endpoint_from, gpu_pages
from outdraft.measure.summary import parse_slo
from outdraft.measure.token_counts import token_counts
from outdraft.options import refuse_given
from outdraft.report.bench_page import bench_page
from outdraft.report.bench_tables import bench_notes, sweep_table, turns_table
from outdraft.report.figures_csv import bench_csv
from outdraft.report.tables import bench_table
from outdraft.whole_file import write_json, write_text
from outdraft.workload.settings import LoadPlan, plan_loads, with_input_lengths


def run(args: argparse.Namespace) -> int:
    if args.quick:
        # torch and tokenizers: only an engine of our own needs them.
        from outdraft.cli.quick import run_quick

        return run_quick(args)
    refuse_given(args, QUICK_OPTIONS, "without --quick")
    if args.url is None:
        raise OptionError("no URL: give the address of a server, or --quick for our own engine")
    slo = None if args.slo is None else parse_slo(args.slo)
    plans = plan_loads(args, num_spare)
    endpoint = endpoint_from(args.url, args)
    [gpu_metrics] = gpu_pages(args, 1)
    if args.input_len is not None:
        plans = _fitted(endpoint, plans, args)
    is_timed = any(each.duration_s is not None for each in plans)
    total = None if is_timed else sum(each.num_requests + len(each.warmup) for each in plans)
    with show_and_journal(total, "bench", args.out) as sink:
        bench = run_bench(
            endpoint,
            plans,
            load={"seed": args.seed, **describe_requests(args)},
            slo=slo,
            processes=args.processes,
            keep_memory=args.keep_memory,
            gpu_metrics=gpu_metrics,
            sink=sink,
        )
        if args.out is not None:
            write_json(Path(args.out), bench.to_json())
    if args.csv is not None:
        write_text(Path(args.csv), bench_csv(bench))
    if args.page is not None:
        write_text(Path(args.page), bench_page(bench))
    if args.json:
        print(json.dumps(_to_json(bench, len(plans) > 1)))
    else:
        _show(bench, len(plans) > 1)
    return 0 if bench.is_valid else 1


def _fitted(
    endpoint: Endpoint, plans: Sequence[LoadPlan], args: argparse.Namespace
) -> list[LoadPlan]:
    """The loads with prompts of --input-len, by the server's own count of tokens."""
    with say_if_slow("making prompts of this length"):
        counts = token_counts(endpoint, [*plans[0].warmup, *plans[0].requests])
        if (own := counts.count("")) >= args.input_len.low:
            raise OptionError(
                f"--input-len {args.input_len} is too short: the server's template alone has {own} "
                "tokens"
            )
        fitted = [
            with_input_lengths(each, args.input_len, args.seed, counts.count) for each in plans
        ]
    notes = [counts.note] if counts.note else []
    return [replace(each, notes=(*notes, *each.notes)) for each in fitted]


def _show(bench: Bench, is_sweep: bool) -> None:
    last = bench.loads[-1]
    if is_sweep:
        print(sweep_table(bench))
    else:
        print(bench_table(last.summary, last.trial.server_metrics))
        if last.summary.turns:
            print(f"\n{turns_table(last.summary)}")
    environment = last.trial.environment
    engine, version = (environment[f"server_{each}"] for each in ("engine", "version"))
    print(f"server: {engine or 'an unknown engine'} {version or ''}".rstrip())
    for note in bench_notes(bench):
        print(f"note: {note}")
    if not bench.is_valid:
        print("INVALID: these figures are not the server's")


def _to_json(bench: Bench, is_sweep: bool) -> dict[str, Any]:
    if not is_sweep:
        return _load_to_json(bench.loads[0])
    saturation = bench.saturation
    return {
        "valid": bench.is_valid,
        "loads": [{"load": each.name, **_load_to_json(each)} for each in bench.loads],
        "saturation": None if saturation is None else asdict(saturation),
    }


def _load_to_json(load: BenchLoad) -> dict[str, Any]:
    return {
        "valid": load.trial.is_valid,
        "problems": load.trial.problems,
        "summary": load.summary.to_json(),
        "server": dict(load.trial.server_metrics),
    }

"""`outdraft bench URL`: measures one server under one load."""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path

from outdraft.cli.recording import show_and_journal
from outdraft.measure.plateau import num_spare
from outdraft.measure.settings import endpoint_from
from outdraft.measure.summary import parse_slo, summarize
from outdraft.measure.trial import run_trial
from outdraft.report.tables import bench_table
from outdraft.whole_file import write_json
from outdraft.workload.settings import plan_load


def run(args: argparse.Namespace) -> int:
    slo = None if args.slo is None else parse_slo(args.slo)
    load = plan_load(args, num_spare(args.concurrency))
    endpoint = endpoint_from(args.url, args)
    with show_and_journal(len(load.requests) + args.warmup, "bench", args.out) as sink:
        trial, quality = run_trial(
            endpoint,
            load.requests,
            arm="server",
            load={**load.description, "requests": len(load.requests), "seed": args.seed,
                  "slo": slo},
            concurrency=load.concurrency,
            warmup=load.warmup,
            spare=load.spare,
            processes=args.processes,
            keep_memory=args.keep_memory,
            sink=sink,
        )  # fmt: skip
        trial = replace(trial, problems=(*load.notes, *trial.problems))
        if args.out is not None:
            write_json(Path(args.out), trial.to_json())
    summary = summarize(trial.records, slo, trial.server_metrics)
    server_metrics = dict(trial.server_metrics)
    if args.json:
        print(json.dumps({"valid": quality.is_valid, "problems": trial.problems,
                          "summary": asdict(summary), "server": server_metrics}))  # fmt: skip
    else:
        print(bench_table(summary, server_metrics))
        engine, version = (trial.environment[f"server_{each}"] for each in ("engine", "version"))
        print(f"server: {engine or 'an unknown engine'} {version or ''}".rstrip())
        for problem in trial.problems:
            print(f"note: {problem}")
        if not quality.is_valid:
            print("INVALID: these figures are not the server's")
    return 0 if quality.is_valid else 1

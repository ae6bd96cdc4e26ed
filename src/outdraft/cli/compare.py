"""`outdraft compare BASELINE CANDIDATE`: says, with intervals, whether the candidate is faster."""

import argparse
import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outdraft.cli.recording import show_and_journal
from outdraft.errors import OptionError
from outdraft.measure.block_size import LEAST
from outdraft.measure.compare import BASELINE, CANDIDATE, compare
from outdraft.measure.comparison import Comparison, ComparisonSettings
from outdraft.measure.machine import describe_client
from outdraft.measure.saved import (
    compare_saved,
    in_blocks,
    load_to_json,
    noise_floor_of,
    ratios_to_json,
    read_trial,
    texts_to_json,
    write_comparison,
)
from outdraft.measure.settings import (
    comparison_settings,
    describe_requests,
    endpoint_from,
    gpu_pages,
)
from outdraft.report.compare_page import ComparedRun, compare_page
from outdraft.report.figures_csv import compare_csv
from outdraft.report.tables import compare_table, load_lines
from outdraft.whole_file import write_text
from outdraft.workload.settings import prompts_from


def run(args: argparse.Namespace) -> int:
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    is_url = [each.startswith(("http://", "https://")) for each in (args.baseline, args.candidate)]
    if is_url[0] != is_url[1]:
        raise OptionError("give two URLs or two saved runs, not one of each")
    settings = comparison_settings(args, is_live=is_url[0])
    load = None  # what the servers had to do; of saved runs, their files say it
    if is_url[0]:
        comparison = _compare_servers(args, settings)
        evidence, verdict = comparison.evidence, comparison.verdict
        assert evidence is not None
        assert verdict is not None
        load = load_to_json(comparison)
        in_table = records = {name: comparison.of(name) for name in (BASELINE, CANDIDATE)}
        about: Mapping[str, Any] = describe_client()
    else:
        if args.draft is not None:
            raise OptionError("saved runs hold no prompts to leave out; give --draft to bench")
        runs = read_trial(Path(args.baseline)), read_trial(Path(args.candidate))
        size = args.block or LEAST
        evidence, verdict = compare_saved(*runs, size, settings)
        twins = in_blocks(runs[0].records, runs[1].records, size)
        in_table = dict(zip((BASELINE, CANDIDATE), twins, strict=True))
        records = {BASELINE: list(runs[0].records), CANDIDATE: list(runs[1].records)}
        about = {BASELINE: runs[0].environment, CANDIDATE: runs[1].environment}
    if args.csv is not None:
        write_text(Path(args.csv), compare_csv(in_table, in_turns=is_url[0]))
    if args.page is not None:
        compared = ComparedRun(
            args.baseline,
            args.candidate,
            evidence,
            verdict,
            records,
            settings={**asdict(settings), **(load or {}), **describe_requests(args)},
            environment=about,
            started_at=started_at,
        )
        write_text(Path(args.page), compare_page(compared))
    is_same, floor = args.baseline == args.candidate, noise_floor_of(evidence)
    if args.json:
        result = {
            "verdict": asdict(verdict),
            "ratios": ratios_to_json(evidence),
            "texts": texts_to_json(evidence),
            **({} if load is None else {"load": load}),
        }
        print(json.dumps(result | ({"noise_floor": floor} if is_same else {})))
    else:
        print(compare_table(evidence, verdict))
        if load is not None:
            print(load_lines(load))
        if is_same and floor is not None:
            print(f"noise floor: {floor:.3f} (A/A); a later compare takes it with --noise-floor")
    return 0 if evidence.is_valid else 1


def _compare_servers(args: argparse.Namespace, settings: ComparisonSettings) -> Comparison:
    """With evidence and a verdict."""
    prompts, notes = prompts_from(args)
    baseline, candidate = (endpoint_from(url, args) for url in (args.baseline, args.candidate))
    gpu_metrics = gpu_pages(args, 2)
    size = settings.block_size
    total = None if size is None else 2 * size * (settings.max_blocks + 1)
    with show_and_journal(total, "compare", args.out) as sink:
        comparison = compare(
            baseline, candidate, prompts, settings, notes=notes, gpu_metrics=gpu_metrics, sink=sink
        )
        if comparison.evidence is None or comparison.verdict is None:
            raise OptionError("stopped before the first look: nothing can be said")
        if args.out is not None:
            is_same = args.baseline == args.candidate
            write_comparison(Path(args.out), comparison, is_same_server=is_same)
    return comparison

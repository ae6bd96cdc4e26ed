"""Several loads of `bench` as plain text."""

from collections import Counter

from outdraft.measure.bench import Bench, BenchLoad
from outdraft.measure.summary import QuantileEstimate, Summary
from outdraft.report.numbers import UNKNOWN, acceptance_cell, milliseconds, rate
from outdraft.report.tables import gpu_lines
from outdraft.text_table import align_columns

_HEADS = ("", "requests", "failed", "/s", "tokens/s", "TTFT P50", "P95", "TPOT P50", "P95",
          "e2e P50", "P95")  # fmt: skip


def sweep_table(bench: Bench) -> str:
    """A row for each load, then where the server is saturated."""
    heads, rows = list(_HEADS), [_cells(each) for each in bench.loads]
    if any(each.summary.goodput_per_s is not None for each in bench.loads):
        heads.append("goodput/s")
        for row, each in zip(rows, bench.loads, strict=True):
            row.append(rate(each.summary.goodput_per_s))
    if any(each.summary.acceptance is not None for each in bench.loads):
        heads.append("acceptance")
        for row, each in zip(rows, bench.loads, strict=True):
            acceptance = each.summary.acceptance
            row.append(
                UNKNOWN
                if acceptance is None
                else acceptance_cell(acceptance.rate, acceptance.share_drafted)
            )
    lines = [align_columns([heads, *rows]), "times in ms; requests and tokens a second are those "
             "of the time in which all of the load ran"]  # fmt: skip
    for load in bench.loads:
        lines += [f"{load.name}: GPU {each}" for each in gpu_lines(load.trial.server_metrics)]
    if bench.saturation is not None:
        lines += ["", bench.saturation.words]
    return "\n".join(lines)


def _cells(load: BenchLoad) -> list[str]:
    summary = load.summary
    cells = [
        load.name if load.trial.is_valid else f"{load.name} INVALID",
        str(summary.num_requests),
        str(summary.num_errors),
        rate(summary.requests_per_s),
        rate(summary.tokens_per_s),
    ]
    for times in (summary.ttft, summary.tpot, summary.e2e):
        cells += [_time(each) for each in times[:2]] or [UNKNOWN, UNKNOWN]
    return cells


def _time(quantile: QuantileEstimate) -> str:
    return milliseconds(quantile.value)


def turns_table(summary: Summary) -> str:
    """A row for each turn of the sessions."""
    heads = ("", "requests", "prompt tokens", "cached", "TTFT P50", "P95", "TPOT P50", "P95")
    rows = [
        (
            f"turn {each.turn}",
            str(each.num_requests),
            UNKNOWN if each.mean_prompt_tokens is None else f"{each.mean_prompt_tokens:.0f}",
            UNKNOWN if each.mean_cached_tokens is None else f"{each.mean_cached_tokens:.0f}",
            *(_time(quantile) for quantile in each.ttft[:2]),
            *([_time(quantile) for quantile in each.tpot[:2]] or [UNKNOWN, UNKNOWN]),
        )
        for each in summary.turns
    ]
    return align_columns([heads, *rows])


def bench_notes(bench: Bench) -> list[str]:
    """What is to be known of all loads, then of single ones, with their names."""
    counts = Counter(each for load in bench.loads for each in dict.fromkeys(load.trial.problems))
    if len(bench.loads) == 1:
        return list(bench.loads[0].trial.problems)
    common = [each for each, count in counts.items() if count == len(bench.loads)]
    single = [
        f"{load.name}: {each}"
        for load in bench.loads
        for each in load.trial.problems
        if each not in common
    ]
    return common + single

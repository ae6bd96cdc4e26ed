"""The figures of `bench` as CSV: a row for each load."""

import csv
import io

from outdraft.measure.bench import Bench, BenchLoad

_COUNTS = ("num_requests", "num_errors", "duration_s", "plateau_s", "requests_per_s",
           "offered_per_s", "tokens_per_s", "goodput_per_s", "mean_prompt_tokens",
           "mean_output_tokens")  # fmt: skip
_TIMES = ("ttft", "tpot", "e2e")
_ENDS = ("_mean", "_max")  # of what the server or its GPUs said meanwhile


def bench_csv(bench: Bench) -> str:
    """What is not known is empty."""
    rows = [_row(each) for each in bench.loads]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _row(load: BenchLoad) -> dict[str, object]:
    summary, said = load.summary, load.trial.server_metrics
    row: dict[str, object] = {
        "load": load.name,
        "concurrency": load.trial.load.get("concurrency"),
        "rate": load.trial.load.get("rate"),
        "valid": load.trial.is_valid,
        **{name: getattr(summary, name) for name in _COUNTS},
    }
    for name in _TIMES:
        for each in getattr(summary, name):
            row[f"{name}_p{100 * each.q:.0f}_ms"] = each.value if each.is_known else None
    acceptance = summary.acceptance
    row["acceptance_rate"] = None if acceptance is None else acceptance.rate
    row["acceptance_length"] = None if acceptance is None else acceptance.length
    return row | {name: said[name] for name in sorted(said) if name.endswith(_ENDS)}

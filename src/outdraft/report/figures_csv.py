"""Figures as CSV: of `bench` a row for each load, of `compare` for each block of each server."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from outdraft.measure.bench import Bench, BenchLoad
from outdraft.measure.summary import Summary, summarize
from outdraft.records import Record

_COUNTS = ("num_requests", "num_errors", "duration_s", "plateau_s", "requests_per_s",
           "offered_per_s", "tokens_per_s", "goodput_per_s", "mean_prompt_tokens",
           "mean_output_tokens")  # fmt: skip
_PACES = ("duration_s", "plateau_s", "requests_per_s", "offered_per_s", "tokens_per_s")
_TIMES = ("ttft", "tpot", "e2e")
_ENDS = ("_mean", "_max")  # of what the server or its GPUs said meanwhile


def bench_csv(bench: Bench) -> str:
    """What is not known is empty."""
    return _table([_of_load(each) for each in bench.loads])


def compare_csv(arms: Mapping[str, Sequence[Record]], *, in_turns: bool) -> str:
    """The same columns. Blocks of one number, one of each arm, had the same requests. Where these
    were not sent in turns, a block is a part of a longer run: it has no pace of its own."""
    rows = []
    for block in sorted({each.block for each in _counted(arms.values())}):
        for arm, records in arms.items():
            figures = _figures(summarize([each for each in records if each.block == block]))
            if not in_turns:
                figures |= dict.fromkeys(_PACES)
            rows.append({"arm": arm, "block": block, **figures})
    return _table(rows)


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _counted(arms: Iterable[Sequence[Record]]) -> Iterable[Record]:
    return (each for records in arms for each in records if not each.is_warmup)


def _of_load(load: BenchLoad) -> dict[str, object]:
    said = load.trial.server_metrics
    return {
        "load": load.name,
        "concurrency": load.trial.load.get("concurrency"),
        "rate": load.trial.load.get("rate"),
        "valid": load.trial.is_valid,
        **_figures(load.summary),
        **{name: said[name] for name in sorted(said) if name.endswith(_ENDS)},
    }


def _figures(summary: Summary) -> dict[str, object]:
    row: dict[str, object] = {name: getattr(summary, name) for name in _COUNTS}
    for name in _TIMES:
        for each in getattr(summary, name):
            row[f"{name}_p{100 * each.q:.0f}_ms"] = each.value if each.is_known else None
    acceptance = summary.acceptance
    row["acceptance_rate"] = None if acceptance is None else acceptance.rate
    row["acceptance_length"] = None if acceptance is None else acceptance.length
    return row

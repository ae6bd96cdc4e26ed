"""Plain tables: aligned text without colour, to be pasted into a pull request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outdraft.decide.evidence import Acceptance, Evidence
from outdraft.decide.verdict import Verdict
from outdraft.measure.summary import Quantile, Summary
from outdraft.stats import Ratio


def bench_table(summary: Summary, server_metrics: dict[str, float]) -> str:
    rows: list[Sequence[str]] = [("", "P50", "P95", "P99")]
    for name, found in (("TTFT ms", summary.ttft), ("TPOT ms", summary.tpot)):
        rows.append((name, *map(_quantile, found)))
    rows.append(("e2e ms", *map(_quantile, summary.e2e)))
    parts = [aligned(rows), "", *_throughput(summary)]
    if summary.acceptance is not None:
        parts += ["", *_acceptance(summary.acceptance)]
    parts += _server(server_metrics)
    return "\n".join(parts)


def compare_table(evidence: Evidence, verdict: Verdict) -> str:
    """Ratios first, then the verdict with its reasons, then the checks that have something."""
    rows = [("", "speedup", "interval", "pairs")]
    named: list[tuple[str, Ratio | None]] = [
        ("e2e median", evidence.e2e),
        ("TPOT median", evidence.tpot),
        ("TTFT median", evidence.ttft),
        ("throughput", evidence.throughput),
        ("e2e P99", evidence.p99),
        *((f"category {name}", ratio) for name, ratio in evidence.by_category.items()),
        *((f"temperature {name}", ratio) for name, ratio in evidence.by_temperature.items()),
    ]
    # Parts of the traffic that cannot be judged yet are left out; the whole never is.
    rows += [
        _ratio(name, ratio)
        for at, (name, ratio) in enumerate(named)
        if ratio is not None and (ratio.low is not None or at == 0)
    ]
    lines = [aligned(rows), "", verdict_line(verdict)]
    lines += [f"  - {reason}" for reason in verdict.reasons]
    same = evidence.equivalence
    if same is not None:
        lines.append(f"same greedy text: {same.num_identical} of {same.num_compared}")
    if evidence.acceptance is not None:
        lines.append(f"acceptance rate: {evidence.acceptance.rate:.2f}")
    told = [check for check in verdict.checks if check.state != "ok"]
    if told:
        lines += ["", "checks that have something to say (they do not decide):"]
        for check in told:
            shown = f"{check.value:.3g}" if isinstance(check.value, float) else check.value
            lines.append(f"  {check.state:4} {check.name} {shown} ({check.threshold})")
            lines.append(f"       {check.advice}")
    return "\n".join(lines)


def verdict_line(verdict: Verdict) -> str:
    where = f" {', '.join(verdict.ship_for)}" if verdict.ship_for else ""
    return f"{verdict.decision}{where}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    )


def _quantile(found: Quantile) -> str:
    interval = "" if found.low is None else f" [{_ms(found.low)}, {_ms(found.high or 0)}]"
    return f"{_ms(found.value)}{interval}"


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _ratio(name: str, ratio: Ratio) -> tuple[str, str, str, str]:
    interval = "too few blocks" if ratio.low is None else f"[{ratio.low:.3f}, {ratio.high:.3f}]"
    return name, f"{ratio.estimate:.3f}", interval, str(ratio.num_pairs)


def _throughput(summary: Summary) -> Iterable[str]:
    yield (
        f"{summary.num_requests} requests in {summary.duration_s:.1f} s, "
        f"{summary.num_errors} failed · {summary.requests_per_s:.2f} requests/s · "
        f"{summary.tokens_per_s:.1f} tokens/s"
    )
    if summary.goodput_per_s is not None:
        yield f"goodput {summary.goodput_per_s:.2f} requests/s within the SLO"


def _acceptance(found: Acceptance) -> Iterable[str]:
    whole = f"acceptance rate {found.rate:.2f}, length {_share(found.length)}"
    if found.num_requests:
        yield (
            f"{whole}; over requests P10 {_share(found.p10)}, P50 {_share(found.p50)}, "
            f"P90 {_share(found.p90)} (n={found.num_requests})"
        )
    else:
        yield f"{whole}, by the server's counters: its answers do not tell of their own drafts"
    if found.per_position:
        yield "  by position:    " + "  ".join(f"{rate:.2f}" for rate in found.per_position)
    for title, table in (
        ("  by category:    ", found.by_category),
        ("  by temperature: ", found.by_temperature),
    ):
        if table:
            yield title + "  ".join(f"{name} {rate:.2f}" for name, rate in table.items())


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def _server(metrics: dict[str, float]) -> Iterable[str]:
    usage = metrics.get("kv_cache_usage_max")
    preempted = metrics.get("vllm:num_preemptions_total")
    told = []
    if usage is not None:
        mean = metrics.get("kv_cache_usage_mean", usage)
        told.append(f"KV cache in use at most {100 * usage:.0f} %, on average {100 * mean:.0f} %")
    if preempted is not None:
        told.append(f"{preempted:.0f} preemptions")
    if told:
        yield ""
        yield "server: " + ", ".join(told)

"""Results of `bench`, `compare` and `tune` as plain text, to be pasted into a pull request."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import counts_text
from outdraft.decide.verdict import INCONCLUSIVE, Verdict
from outdraft.measure.gpus import BUSY, MEMORY
from outdraft.measure.memory import REMEMBERED
from outdraft.measure.running import RunningRequests
from outdraft.measure.summary import FEWEST_FOR_TAIL, QuantileEstimate, Summary
from outdraft.plan.findings import OK
from outdraft.report.arms_table import arms_table
from outdraft.report.numbers import acceptance_text, drafted_text, milliseconds, percent
from outdraft.text_table import align_columns, wrap_lines
from outdraft.tune.answer import LoadAnswer, answer_of
from outdraft.tune.results import (
    FROM_COUNTERS,
    SOURCES,
    STATES,
    UNTRIED,
    ArmResult,
    PredictionResult,
    Results,
)
from outdraft.tune.rivals import why_not_higher
from outdraft.tune.wording import details, does_text, headline, loads_text, speedup_text

_MOST_ARMS = 10  # of a load; the others are in the report
_BY_COUNTERS = "by the server's counters: its answers do not report acceptance"


def bench_table(summary: Summary, server_metrics: Mapping[str, float]) -> str:
    times = (("TTFT ms", summary.ttft), ("TPOT ms", summary.tpot), ("e2e ms", summary.e2e))
    rows = [(title, *map(_quantile, quantiles)) for title, quantiles in times]
    lines = [
        align_columns([("", "P50", "P95", "P99"), *rows]),
        "",
        f"{summary.num_requests} requests in {summary.duration_s:.1f} s, "
        f"{summary.num_errors} failed · {summary.requests_per_s:.2f} requests/s · "
        f"{summary.tokens_per_s:.1f} tokens/s",
    ]
    if summary.mean_prompt_tokens and summary.mean_output_tokens:
        lines.append(
            f"on average {summary.mean_prompt_tokens:.0f} tokens in a prompt, "
            f"{summary.mean_output_tokens:.0f} in an answer"
        )
    if summary.num_lead:
        lines.append(
            f"not counted: {summary.num_lead} requests that brought the server to this load"
        )
    if summary.plateau_s is not None:
        over = f"the {summary.plateau_s:.1f} s in which all of it ran"
        lines.append(f"requests/s and tokens/s are over {over}")
    if summary.goodput_per_s is not None:
        lines.append(f"goodput {summary.goodput_per_s:.2f} requests/s within the SLO")
    if not all(each.is_known for _, quantiles in times for each in quantiles):
        done = summary.num_requests - summary.num_errors
        lines.append(f"{done} requests are too few for a P99: it needs {FEWEST_FOR_TAIL}")
    if summary.acceptance is not None:
        lines += ["", *_acceptance(summary.acceptance)]
    server = []
    if (usage := server_metrics.get("kv_cache_usage_max")) is not None:
        mean = server_metrics.get("kv_cache_usage_mean", usage)
        server.append(f"KV cache in use at most {100 * usage:.0f} %, on average {100 * mean:.0f} %")
    if (preemptions := server_metrics.get("vllm:num_preemptions_total")) is not None:
        server.append(f"{preemptions:.0f} preemptions")
    if server:
        lines += ["", f"server: {', '.join(server)}"]
    lines += [f"GPU {each}" for each in gpu_lines(server_metrics)]
    return "\n".join(lines)


def gpu_lines(server_metrics: Mapping[str, float]) -> Iterator[str]:
    """How much of each GPU was in use, where that is known."""
    numbers = [re.fullmatch(rf"gpu(\d+)_{MEMORY}_max", name) for name in server_metrics]
    for number in sorted(int(each[1]) for each in numbers if each is not None):
        memory, busy = (f"gpu{number}_{name}" for name in (MEMORY, BUSY))
        said = f"{number}: {server_metrics[f'{memory}_max']:.1f} GiB in use at most"
        if (mean := server_metrics.get(f"{busy}_mean")) is not None:
            said += f", busy {100 * mean:.0f} % of the time"
        yield said


def compare_table(evidence: Evidence, verdict: Verdict) -> str:
    """Ratios first, then the verdict with its reasons, then the checks that warn or fail."""
    ratios = {
        "e2e mean": evidence.e2e,
        "e2e, all seconds": evidence.total,
        "TPOT mean": evidence.tpot,
        "TTFT mean": evidence.ttft,
        "throughput": evidence.throughput,
        "e2e P99": evidence.p99,
        **evidence.parts,
    }
    rows = [("", "speedup", "interval", "pairs")]
    for name, ratio in ratios.items():
        # Only the whole is shown without an interval; parts that have none cannot be judged.
        if ratio is not None and (ratio.low is not None or ratio is evidence.e2e):
            is_known = ratio.low is not None
            interval = f"[{ratio.low:.3f}, {ratio.high:.3f}]" if is_known else "too few blocks"
            rows.append((name, f"{ratio.estimate:.3f}", interval, str(ratio.num_pairs)))
    lines = [align_columns(rows), "", decision_text(verdict)]
    lines += [f"  - {reason}" for reason in verdict.reasons]
    counts = counts_text(evidence.texts, evidence.text_floor)
    if evidence.texts is not None and not any(counts in each for each in verdict.reasons):
        lines.append(counts)
    if evidence.acceptance is not None:
        found = evidence.acceptance
        lines.append(f"acceptance rate: {acceptance_text(found.rate, found.share_drafted)}")
        if not evidence.acceptance.num_requests:
            lines.append(f"  {_BY_COUNTERS}")
    warnings = [check for check in verdict.checks if check.state != OK]
    if warnings:
        lines += ["", "checks that warn or fail (they explain, they do not decide):"]
    for check in warnings:
        value = f"{check.value:.3g}" if isinstance(check.value, float) else check.value
        lines.append(f"  {check.state:4} {check.name} {value} ({check.threshold})")
        lines.append(f"       {check.advice}")
    return "\n".join(lines)


def load_lines(load: Mapping[str, Any]) -> str:
    """What the servers of a comparison had to do (`load_to_json`)."""
    bounds = load.get("running_requests_interval", {})  # not in files of before
    running = [
        f"{name} {RunningRequests(mean, *bounds.get(name, (None, None)))}"
        for name, mean in load["running_requests"].items()
    ]
    said = f"; running on average, as the servers count: {', '.join(running)}" if running else ""
    words = f"{load['num_blocks']} blocks of {load['block_size']} requests to each server"
    lines = [f"load: {load['concurrency']} at a time, {words}{said}"]
    for name, figures in load.get("gpus", {}).items():
        lines += [f"{name}: GPU {each}" for each in gpu_lines(figures)]
    return "\n".join(lines)


def tune_table(results: Results, width: int | None = None) -> str:
    """A table for each load, the best arm first; then the answer, predictions, schedule, notes.
    `width`: of a terminal."""
    lines = []
    answer = answer_of(results)
    for load in results.loads:
        lines += [load.name, _load_table(answer.at(load), width), ""]
    lines += [f"range: {sentence}" for sentence in details(answer)]
    for load in results.loads:
        lines += [f"higher: {sentence}" for sentence in why_not_higher(load)]
    lines += _predictions(results.prediction)
    if len(results.schedule) > 1:
        steps = ", ".join(
            f"{low} to {high}: {f'k={k}' if k else 'off'}" for low, high, k in results.schedule
        )
        unused = f" (not used: {answer.schedule_fault})" if answer.schedule_fault else ""
        lines.append(f"schedule by requests running: {steps}{unused}")
        for each in results.scheduled:
            ratio, speedup = each.measured, f"failed ({each.reason})"
            if ratio is not None:
                speedup = f"{speedup_text(ratio)} over off, n={ratio.num_pairs}"
            lines.append(f"  the schedule at {each.load}: {speedup}")
    if sources := _acceptance_sources(results):
        lines.append(f"acceptance: {sources}")
    lines += [f"pruned: {each.name} ({each.reason})" for each in results.pruned]
    lines += [f"note: {note}" for note in results.notes]
    return wrap_lines("\n".join(lines).rstrip(), width)


def best_line(results: Results) -> str:
    """E.g. `best: ngram k=5 · 1.84x [1.79, 1.90] over off at 1 request at a time · acceptance 0.71
    · SHIP · turn it on up to 2 requests at a time; off above`: the headline is a part of it."""
    load = results.main
    best = None if load is None else load.best_arm
    said = headline(answer_of(results))
    words = ["best: off"]
    if load is not None and best is not None:
        speedup = f"{speedup_text(best.measured)} over off at {loads_text([load])}"
        if best.measured is None:
            known = best.predicted is not None
            speedup = f"{best.predicted:.2f}x predicted only" if known else "not measured"
        words = [f"best: {best.name}", speedup, _acceptance_of(best)]
        words += [decision_text(load.verdict), load.text_warning]
    words.append(f"{said[0].lower()}{said[1:]}")
    words += [REMEMBERED] if results.settings.get("keep_memory") else []
    return " · ".join(each for each in words if each)


def _acceptance_of(arm: ArmResult) -> str:
    if arm.acceptance_rate is None:
        return ""
    by_counters = " (counters)" if arm.acceptance_source == FROM_COUNTERS else ""
    drafted = drafted_text(arm.share_drafted)
    return f"acceptance {arm.acceptance_rate:.2f}{by_counters}{f', {drafted}' if drafted else ''}"


def _predictions(error: PredictionResult) -> Iterator[str]:
    if not error.num_arms or error.median_error is None:
        return
    within = round((error.within_15_percent or 0) * error.num_arms)
    told: dict[str, list[str]] = {}
    for load, arm in error.judged[:_MOST_ARMS]:
        told.setdefault(load, []).append(arm)
    names = "; ".join(f"{load}: {', '.join(arms)}" for load, arms in told.items())
    if len(error.judged) > _MOST_ARMS:
        names += "; the others are in the report"
    words = f"{within} of {error.num_arms} arms within 15 %"
    median = f"median error {100 * error.median_error:.0f} %"
    yield f"predictions: {words}, {median}{f' ({names})' if names else ''}"


def decision_text(verdict: Verdict | None) -> str:
    """With the parts of the traffic that it holds for; without a verdict, INCONCLUSIVE."""
    return INCONCLUSIVE if verdict is None else verdict.label


def _quantile(quantile: QuantileEstimate) -> str:
    if not quantile.is_known:
        return "too few"
    value = milliseconds(quantile.value)
    if quantile.low is None or quantile.high is None:
        return value
    return f"{value} [{milliseconds(quantile.low)}, {milliseconds(quantile.high)}]"


def _acceptance(acceptance: AcceptanceSummary) -> Iterator[str]:
    length, p10, p50, p90 = (
        "unknown" if value is None else f"{value:.2f}"
        for value in (acceptance.length, acceptance.p10, acceptance.p50, acceptance.p90)
    )
    rate = acceptance_text(acceptance.rate, acceptance.share_drafted)
    total = f"acceptance rate {rate}, length {length}"
    if acceptance.num_requests:
        spread = f"over requests P10 {p10}, P50 {p50}, P90 {p90}"
        yield f"{total}; {spread} (n={acceptance.num_requests})"
    else:
        yield f"{total}, {_BY_COUNTERS}"
    if acceptance.per_position:
        yield "  by position:    " + "  ".join(f"{rate:.2f}" for rate in acceptance.per_position)
    for title, rates in (("category:    ", acceptance.by_category),
                         ("temperature: ", acceptance.by_temperature)):  # fmt: skip
        if rates:
            yield f"  by {title}" + "  ".join(f"{name} {rate:.2f}" for name, rate in rates.items())


def _acceptance_sources(results: Results) -> str:
    """Where the acceptance of the arms comes from; with the arms where it is not the same."""
    arms: dict[str, dict[str, None]] = {source: {} for source in SOURCES}
    for arm in (arm for load in results.loads for arm in load.arms if arm.acceptance_source):
        arms[arm.acceptance_source][arm.name] = None
    told = {SOURCES[source]: names for source, names in arms.items() if names}
    if len(told) < 2:
        return "".join(told)
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in told.items())


def _load_table(answer: LoadAnswer, width: int | None) -> str:
    load = answer.load
    # By state first: predictions of arms that were not measured are often above the others.
    arms = sorted(load.arms, key=lambda arm: (STATES.index(arm.fate), -(arm.speedup or 0.0)))
    known = [arm for arm in arms if arm.fate != UNTRIED]
    table = arms_table(known[:_MOST_ARMS], answer.arm, width)
    if more := len(arms) - len(known[:_MOST_ARMS]):
        table += f"\n… and {more} more in the report"
    level, ratio = "", load.measured
    if ratio is not None and ratio.low is not None and load.verdict is not None:
        share = percent(ratio.level).replace("\N{NO-BREAK SPACE}", " ")
        level = f" · {share} interval, measured anew after the choice"
    best, texts = load.best_arm, ""
    if best is not None and load.text_warning:
        example = None if best.texts is None else best.texts.example
        texts = f"\nit {load.text_warning}: {counts_text(best.texts, load.text_floor)}"
        texts += "" if example is None else f"\n  e.g. {example}"
    does = f" · recommended here: {does_text(answer)}"
    return f"{table}\n{decision_text(load.verdict)}{level}{does}{texts}"

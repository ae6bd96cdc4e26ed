"""Whether a load measured the server, or the client and its failures instead. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from outdraft.loadgen.endpoint import ACCEPTANCE_FIELDS
from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import LoadRun
from outdraft.records import Record
from outdraft.stats.percentiles import percentile

# The client is the bottleneck when one request in a hundred is sent this late, or its event loop
# stalls for this share of the time, and the delay matters beside the server's own time.
MAX_LAG_NS = 5_000_000
MAX_STALLED_SHARE = 0.01
MAX_SHARE_OF_TTFT = 0.10
MAX_ERROR_SHARE = 0.05
BUSY_CPU_SHARE = 0.6  # of a core; a client that is late with less was kept from running
MAX_ASLEEP_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class LoadQuality:
    is_valid: bool
    problems: tuple[str, ...]  # reasons why it is not valid, then remarks
    num_requests: int
    num_errors: int
    lag_p50_ns: float | None  # how late the client sent; None: it sent nothing
    lag_p99_ns: float | None
    stalled_share: float  # of the time, in the client process that stalled most
    cpu_share: float  # of one core, in the busiest client process
    is_stopped: bool = False  # by the user


def assess_load(run: LoadRun) -> LoadQuality:
    """Warm-up requests are ignored, unless there are no others."""
    records = [each for each in run.records if not each.is_warmup] or list(run.records)
    lags = [each.lag_ns for each in records if each.lag_ns is not None]
    # A lag that was measured, never a value between two
    lag_p50, lag_p99 = (
        percentile(lags, q, method="inverted_cdf") if lags else None for q in (0.50, 0.99)
    )
    ttfts = [each.ttft_ns for each in records if each.ok and each.ttft_ns is not None]
    failures, are_few = _failures(records)
    fatal = [] if are_few else failures
    if run.is_stopped:
        fatal.insert(0, f"stopped after {len(run.records)} of {run.num_planned} requests")
    elif not records:
        fatal.insert(0, "no request was sent")
    fatal += _client_problems(lag_p99, median(ttfts) if ttfts else None, run.pulses)
    notes = [*run.problems, *(failures if are_few else [])]
    step = max((each.wall_step_ns for each in run.pulses), key=abs, default=0)
    if step:
        by = f"{step / 1e9:+.3f} s"
        notes.append(f"the wall clock was set by {by}; no measured time depends on it")
    if missed := missed_fields(run.refused_fields):
        names = ", ".join(missed)
        notes.append(f"the server refused {names}: requests were sent without")
    return LoadQuality(
        is_valid=not fatal,
        problems=(*fatal, *notes),
        num_requests=len(records),
        num_errors=sum(each.error is not None for each in records),
        lag_p50_ns=lag_p50,
        lag_p99_ns=lag_p99,
        stalled_share=max((each.stalled_share for each in run.pulses), default=0.0),
        cpu_share=max((each.cpu_share for each in run.pulses), default=0.0),
        is_stopped=run.is_stopped,
    )


def missed_fields(refused: Collection[str]) -> list[str]:
    """Those that the run had to do without. No server knows every engine's name of a field: where
    one of the names was taken, nothing is missed."""
    knows_one = not set(ACCEPTANCE_FIELDS) <= set(refused)
    return [each for each in refused if not (knows_one and each in ACCEPTANCE_FIELDS)]


def assess_client(run: LoadRun) -> LoadQuality | None:
    """Assess the client alone, for one block: only successful requests count. None without any.

    A single failure among the few requests of a block would look like many, so failures are
    judged over all blocks, by `assess_arms`.
    """
    done = tuple(each for each in run.records if each.ok)
    return assess_load(replace(run, records=done, num_planned=len(done))) if done else None


def assess_arms(arms: Mapping[str, Sequence[Record]]) -> tuple[list[str], bool]:
    """The problems of each arm over all its blocks, and whether every arm is valid."""
    problems, is_valid = [], True
    for name, records in arms.items():
        sent = tuple(each for each in records if not each.is_warmup)
        quality = assess_load(LoadRun(sent, len(sent)))
        problems += [f"{name}: {each}" for each in quality.problems]
        is_valid = is_valid and quality.is_valid
    return problems, is_valid


def _failures(records: Sequence[Record]) -> tuple[list[str], bool]:
    """A sentence about the requests that failed, if any did; and whether they are few enough."""
    errors = [each.error for each in records if each.error is not None]
    if not errors:
        return [], True
    # `http 503: try again later` is counted as `http 503`.
    kinds = Counter(error.partition(":")[0] for error in errors).most_common()
    listed = ", ".join(f"{kind} × {count}" for kind, count in kinds)
    share = len(errors) / len(records)
    sentence = f"{len(errors)} of {len(records)} requests failed ({share:.1%}): {listed}"
    if len(errors) <= MAX_ERROR_SHARE * len(records):
        return [sentence], True
    return [f"{sentence}; at most {MAX_ERROR_SHARE:.0%} may"], False


def _client_problems(
    lag: float | None, ttft: float | None, pulses: Sequence[Pulse]
) -> Iterator[str]:
    """Where the client was too slow to measure this server, or the machine was suspended."""
    context = "" if ttft is None else f" (the median time to the first token is {_ms(ttft)})"
    worth_noting = 0 if ttft is None else MAX_SHARE_OF_TTFT * ttft
    if lag is not None and lag > max(MAX_LAG_NS, worth_noting):
        yield (
            f"the client was the bottleneck: one request in a hundred was sent {_ms(lag)} late or "
            f"more{context}{_remedy(pulses)}"
        )
    worst = max(pulses, key=lambda each: each.stalled_share, default=Pulse())
    if worst.stalled_share > MAX_STALLED_SHARE and worst.worst_late_ns > worth_noting:
        yield (
            f"the client's event loop was blocked for {worst.stalled_share:.1%} of the time, up to "
            f"{_ms(worst.worst_late_ns)} at once{context}{_remedy(pulses)}"
        )
    asleep = max((each.asleep_ns for each in pulses), default=0)
    if asleep > MAX_ASLEEP_NS:
        yield f"the machine was suspended for {asleep / 1e9:.1f} s during the run"


def _remedy(pulses: Sequence[Pulse]) -> str:
    if not pulses:  # how busy the client was is known for its processes only
        return ""
    share = max(each.cpu_share for each in pulses)
    if share > BUSY_CPU_SHARE:
        return f"; it used {share:.0%} of a core: use more client processes, or send less"
    return f"; it had only {share:.0%} of a core: give it a machine with less to do"


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:.1f} ms"

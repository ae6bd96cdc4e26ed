"""Whether a run says something about the server: pure judgement, in sentences with numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import Run
from outdraft.records import Record

# The client is the bottleneck when one request in a hundred is sent this late, or it does not
# listen for this share of the time, and what it is late by matters beside the server's own time.
MAX_LAG_NS = 5_000_000
MAX_STALLED_SHARE = 0.01
MAX_SHARE_OF_TTFT = 0.10
MAX_ERROR_SHARE = 0.05
BUSY_CPU_SHARE = 0.6  # of a core; a client that is late with less was kept from running
MAX_ASLEEP_NS = 50_000_000


@dataclass(frozen=True, slots=True)
class Quality:
    is_valid: bool
    problems: tuple[str, ...]  # why it is not, and what to know if it is
    num_requests: int
    num_errors: int
    lag_p50_ns: int | None  # how late the client sent; None: it sent nothing
    lag_p99_ns: int | None
    stalled_share: float  # of the time, of the client process that had most of it
    cpu_share: float  # of one core, likewise

    @property
    def error_share(self) -> float:
        return self.num_errors / self.num_requests if self.num_requests else 0.0


def judge(run: Run) -> Quality:
    """Warm-up requests are left out, but where there is nothing else."""
    records = [each for each in run.records if not each.is_warmup] or list(run.records)
    errors = [each.error for each in records if each.error is not None]
    lags = sorted(each.lag_ns for each in records if each.lag_ns is not None)
    ttfts = [each.ttft_ns for each in records if each.ok and each.ttft_ns is not None]
    ttft = median(ttfts) if ttfts else None
    fatal = [
        *_too_few(run, records),
        *_too_many_errors(errors, len(records)),
        *_too_late(lags, ttft, run.pulses),
        *_too_deaf(run.pulses, ttft),
        *_asleep(run.pulses),
    ]
    notes = [*run.problems, *_some_errors(errors, len(records)), *_steps(run.pulses)]
    if run.refused_fields:
        notes.append(f"the server refused {', '.join(run.refused_fields)}: sent without")
    return Quality(
        is_valid=not fatal,
        problems=(*fatal, *notes),
        num_requests=len(records),
        num_errors=len(errors),
        lag_p50_ns=percentile(lags, 0.50),
        lag_p99_ns=percentile(lags, 0.99),
        stalled_share=max((each.stalled_share for each in run.pulses), default=0.0),
        cpu_share=max((each.cpu_share for each in run.pulses), default=0.0),
    )


def kind_of(error: str) -> str:
    """What errors are counted by: `http 503: try again later` is an `http 503`."""
    return error.partition(":")[0]


def percentile(ordered: Sequence[int], share: float) -> int | None:
    """Nearest rank: a value that was measured, never one between two."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def _too_few(run: Run, records: Sequence[Record]) -> list[str]:
    if run.is_stopped:
        return [f"stopped after {len(run.records)} of {run.num_planned} requests"]
    return [] if records else ["no request was sent"]


def _too_many_errors(errors: Sequence[str], num_records: int) -> list[str]:
    if len(errors) <= MAX_ERROR_SHARE * num_records:
        return []
    return [f"{_counted(errors, num_records)}; at most {MAX_ERROR_SHARE:.0%} may"]


def _some_errors(errors: Sequence[str], num_records: int) -> list[str]:
    if not errors or len(errors) > MAX_ERROR_SHARE * num_records:
        return []
    return [_counted(errors, num_records)]


def _counted(errors: Sequence[str], num_records: int) -> str:
    kinds = Counter(map(kind_of, errors)).most_common()
    listed = ", ".join(f"{kind} × {count}" for kind, count in kinds)
    share = len(errors) / num_records
    return f"{len(errors)} of {num_records} requests failed ({share:.1%}): {listed}"


def _too_late(lags: Sequence[int], ttft: float | None, pulses: Sequence[Pulse]) -> list[str]:
    lag = percentile(lags, 0.99)
    if lag is None or lag <= MAX_LAG_NS or not _matters(lag, ttft):
        return []
    return [
        f"the client was the bottleneck: one request in a hundred was sent {_ms(lag)} late or "
        f"more{_beside(ttft)}; {_remedy(pulses)}"
    ]


def _too_deaf(pulses: Sequence[Pulse], ttft: float | None) -> list[str]:
    worst = max(pulses, key=lambda each: each.stalled_share, default=None)
    if worst is None or worst.stalled_share <= MAX_STALLED_SHARE:
        return []
    if not _matters(worst.worst_late_ns, ttft):
        return []
    return [
        f"the client did not listen for {worst.stalled_share:.1%} of the time, up to "
        f"{_ms(worst.worst_late_ns)} in one piece{_beside(ttft)}; {_remedy(pulses)}"
    ]


def _asleep(pulses: Sequence[Pulse]) -> list[str]:
    longest = max((each.asleep_ns for each in pulses), default=0)
    if longest <= MAX_ASLEEP_NS:
        return []
    return [f"the machine was suspended for {longest / 1e9:.1f} s during the run"]


def _steps(pulses: Sequence[Pulse]) -> list[str]:
    step = max((each.wall_step_ns for each in pulses), key=abs, default=0)
    if not step:
        return []
    return [f"the wall clock was set by {step / 1e9:+.3f} s; no measured time depends on it"]


def _matters(late_ns: float, ttft_ns: float | None) -> bool:
    return ttft_ns is None or late_ns > MAX_SHARE_OF_TTFT * ttft_ns


def _beside(ttft_ns: float | None) -> str:
    return "" if ttft_ns is None else f" (the median time to the first token is {_ms(ttft_ns)})"


def _remedy(pulses: Sequence[Pulse]) -> str:
    share = max((each.cpu_share for each in pulses), default=0.0)
    if share > BUSY_CPU_SHARE:
        return f"it used {share:.0%} of a core: use more client processes, or send less"
    return f"it had only {share:.0%} of a core: give it a machine with less to do"


def _ms(value_ns: float) -> str:
    return f"{value_ns / 1e6:.1f} ms"

"""What a trial's records say of one server: times, throughput, goodput, acceptance. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from outdraft.decide.evidence import Acceptance
from outdraft.errors import OptionError
from outdraft.metrics_page import drafted
from outdraft.records import AcceptanceCounts, Record
from outdraft.stats import percentile, percentile_interval
from outdraft.workload.temperatures import temperature_band

QUANTILES = (0.50, 0.95, 0.99)
SLO_KEYS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Quantile:
    q: float
    value: float  # ms
    low: float | None = None  # None: too few requests for an interval
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    num_requests: int
    num_errors: int
    duration_s: float
    ttft: tuple[Quantile, ...]
    tpot: tuple[Quantile, ...]
    e2e: tuple[Quantile, ...]
    requests_per_s: float
    tokens_per_s: float
    goodput_per_s: float | None  # requests a second that met the SLO; None: none was given
    mean_output_tokens: float | None
    acceptance: Acceptance | None


def parse_slo(text: str) -> dict[str, float]:
    """`ttft=200,tpot=50` → milliseconds by name. `s` and `ms` may be written behind a number."""
    slo: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        scale = 1.0
        if amount.endswith("ms"):
            amount = amount.removesuffix("ms")
        elif amount.endswith("s"):
            amount, scale = amount.removesuffix("s"), 1000.0
        try:
            value = float(amount) * scale
        except ValueError:
            value = 0.0
        if not equals or name not in SLO_KEYS or not 0 < value < float("inf"):
            raise OptionError(f"--slo {text!r}: {part.strip()!r} is not one of ttft, tpot, e2e "
                              "with a time in ms; write e.g. ttft=200,tpot=50")  # fmt: skip
        slo[name] = value
    return slo


def summarize(
    records: Sequence[Record],
    slo: Mapping[str, float] | None = None,
    server_metrics: Mapping[str, float] | None = None,
) -> Summary:
    """Warm-up requests are left out; failed ones count as errors and nowhere else.

    Where answers do not tell what was accepted, `server_metrics` (after minus before) may."""
    counted = [record for record in records if not record.is_warmup]
    done = [record for record in counted if record.ok]
    starts = [record.scheduled_ns for record in counted]
    ends = [record.last_ns for record in done if record.last_ns is not None]
    duration = (max(ends) - min(starts)) / 1e9 if ends else 0.0
    tokens = [record.completion_tokens or 0 for record in done]
    met = None if slo is None else sum(meets(record, slo) for record in done)
    return Summary(
        num_requests=len(counted),
        num_errors=len(counted) - len(done),
        duration_s=duration,
        ttft=_quantiles(record.ttft_ns for record in done),
        tpot=_quantiles(record.tpot_ns for record in done),
        e2e=_quantiles(record.e2e_ns for record in done),
        requests_per_s=len(done) / duration if duration else 0.0,
        tokens_per_s=sum(tokens) / duration if duration else 0.0,
        goodput_per_s=None if met is None or not duration else met / duration,
        mean_output_tokens=sum(tokens) / len(tokens) if tokens else None,
        acceptance=acceptance_of(done, drafted(server_metrics or {})),
    )


def acceptance_of(
    records: Sequence[Record], counted: AcceptanceCounts | None = None
) -> Acceptance | None:
    """Over the requests whose server told, from what was really proposed. Else from `counted`:
    the server's own counters, in which requests of others may be, and which know no parts."""
    told = [each for each in records if each.acceptance and each.acceptance.num_draft_tokens]
    if not told and (counted is None or counted.rate is None):
        return None
    if not told:
        assert counted is not None
        rate, places = counted.rate or 0.0, _per_position(counted)
        return Acceptance(rate=rate, length=counted.length, per_position=places)
    rates = [each.acceptance.rate or 0.0 for each in told if each.acceptance is not None]
    whole = added(told)
    return Acceptance(
        rate=whole.rate or 0.0,
        length=whole.length,
        p10=percentile(rates, 0.10),
        p50=percentile(rates, 0.50),
        p90=percentile(rates, 0.90),
        num_requests=len(told),
        per_position=_per_position(whole),
        by_category=_rates_by(told, lambda each: each.category),
        by_temperature=_rates_by(told, lambda each: temperature_band(each.temperature)),
    )


def meets(record: Record, slo: Mapping[str, float]) -> bool:
    """A text of one token has no time per token, and so none that is too long."""
    times = {"ttft": record.ttft_ns, "tpot": record.tpot_ns, "e2e": record.e2e_ns}
    return all((times[name] or 0) / 1e6 <= limit for name, limit in slo.items())


def _quantiles(values: Iterable[float | None]) -> tuple[Quantile, ...]:
    known = [value / 1e6 for value in values if value is not None]
    if not known:
        return ()
    found = []
    for q in QUANTILES:
        interval = percentile_interval(known, q)
        low, high = interval if interval is not None else (None, None)
        found.append(Quantile(q, percentile(known, q), low, high))
    return tuple(found)


def added(records: Iterable[Record]) -> AcceptanceCounts:
    told = [record.acceptance for record in records if record.acceptance is not None]
    return AcceptanceCounts(
        num_drafts=sum(each.num_drafts for each in told),
        num_draft_tokens=sum(each.num_draft_tokens for each in told),
        num_accepted_tokens=sum(each.num_accepted_tokens for each in told),
        accepted_per_position=_columns(each.accepted_per_position for each in told),
        drafted_per_position=_columns(each.drafted_per_position for each in told),
    )


def _columns(rows: Iterable[Sequence[int]]) -> tuple[int, ...]:
    totals: list[int] = []
    for row in rows:
        totals.extend([0] * (len(row) - len(totals)))
        for place, count in enumerate(row):
            totals[place] += count
    return tuple(totals)


def _per_position(counts: AcceptanceCounts) -> tuple[float, ...]:
    """Share of the rounds that had the place; of all rounds where the server does not say."""
    places = len(counts.accepted_per_position)
    drafted = counts.drafted_per_position or (counts.num_drafts,) * places
    pairs = zip(counts.accepted_per_position, drafted, strict=False)
    return tuple(accepted / had if had else 0.0 for accepted, had in pairs)


def _rates_by(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, float]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return {name: added(members).rate or 0.0 for name, members in sorted(groups.items())}

"""The figures of one trial: latencies, throughput, goodput, acceptance. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.acceptance import Acceptance
from outdraft.decide.evidence import AcceptanceSummary
from outdraft.durations import parse_duration
from outdraft.errors import OptionError
from outdraft.measure.plateau import counted_ns, find_plateau, is_lead, tokens_per_s
from outdraft.observe import Written, read_acceptance, read_written
from outdraft.records import Record
from outdraft.stats.percentiles import percentile, percentile_interval
from outdraft.workload.temperatures import temperature_band

QUANTILES = (0.50, 0.95, 0.99)
SLO_KEYS = ("ttft", "tpot", "e2e")
_TAIL = 0.99
FEWEST_FOR_TAIL = 368  # requests; with fewer there is no interval of a P99


@dataclass(frozen=True, slots=True)
class QuantileEstimate:
    q: float
    value: float  # ms
    low: float | None = None  # None: too few requests for an interval
    high: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether it may be shown. Of too few requests a P99 is the slowest one: no percentile."""
        return self.low is not None or self.q < _TAIL


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """Of the same turn of all sessions. Later turns have longer prompts, most of them cached."""

    turn: int  # from 1 on
    num_requests: int
    ttft: tuple[QuantileEstimate, ...]
    tpot: tuple[QuantileEstimate, ...]
    e2e: tuple[QuantileEstimate, ...]
    mean_prompt_tokens: float | None
    mean_cached_tokens: float | None  # None: the server does not say


@dataclass(frozen=True, slots=True)
class Summary:
    num_requests: int
    num_errors: int
    duration_s: float  # from the first to the end of the last
    ttft: tuple[QuantileEstimate, ...]
    tpot: tuple[QuantileEstimate, ...]
    e2e: tuple[QuantileEstimate, ...]
    requests_per_s: float
    tokens_per_s: float
    goodput_per_s: float | None  # requests a second that met the SLO; None without an SLO
    mean_output_tokens: float | None
    acceptance: AcceptanceSummary | None
    num_lead: int = 0  # requests that brought the server to this load; they are not counted
    plateau_s: float | None = None  # over which requests and tokens a second are; None: all of it
    offered_per_s: float | None = None  # requests a second that were due; None for fewer than two
    mean_prompt_tokens: float | None = None
    turns: tuple[TurnFigures, ...] = ()  # where requests are those of sessions

    def to_json(self) -> dict[str, Any]:
        """A percentile that the sample is too small for is null."""
        values = asdict(self)
        for given, shown in ((self, values), *zip(self.turns, values["turns"], strict=True)):
            for name in SLO_KEYS:
                for known, each in zip(getattr(given, name), shown[name], strict=True):
                    each["value"] = known.value if known.is_known else None
        return values


def parse_slo(text: str) -> dict[str, float]:
    """`ttft=200,tpot=50` → milliseconds by name. A number may have a unit: `ttft=0.2s`."""
    slo: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        try:
            if not equals or name not in SLO_KEYS:
                raise OptionError(part)
            slo[name] = 1000 * parse_duration(amount, option="--slo", unit="ms")
        except OptionError:
            raise OptionError(
                f"--slo {text!r}: {part.strip()!r} is not one of ttft, tpot, e2e with a time in "
                "ms; write e.g. ttft=200,tpot=50"
            ) from None
    return slo


def summarize(
    records: Sequence[Record],
    slo: Mapping[str, float] | None = None,
    server_metrics: Mapping[str, float] | None = None,
) -> Summary:
    """Warm-up requests are ignored; failed ones count as errors and nowhere else.

    `server_metrics` (after minus before) give the acceptance if the answers do not."""
    sent = [record for record in records if not record.is_warmup]
    done = [record for record in sent if record.ok]
    starts = [record.scheduled_ns for record in sent]
    ends = [record.last_ns for record in done if record.last_ns is not None]
    duration = (max(ends) - min(starts)) / 1e9 if ends else 0.0
    tokens = [record.completion_tokens or 0 for record in done]
    plateau, spent = find_plateau(records), counted_ns(records) / 1e9
    met = None if slo is None else sum(meets(record, slo) for record in done)
    return Summary(
        num_requests=len(sent),
        num_errors=len(sent) - len(done),
        duration_s=duration,
        ttft=_quantiles(record.ttft_ns for record in done),
        tpot=_quantiles(record.tpot_ns for record in done),
        e2e=_quantiles(record.e2e_ns for record in done),
        requests_per_s=len(done) / spent if spent else 0.0,
        tokens_per_s=tokens_per_s(records),
        goodput_per_s=None if met is None or not spent else met / spent,
        mean_output_tokens=_mean(tokens),
        acceptance=acceptance_of(
            done, read_acceptance(server_metrics or {}), read_written(server_metrics or {})
        ),
        num_lead=sum(map(is_lead, records)),
        plateau_s=None if plateau is None else plateau.seconds,
        offered_per_s=_pace(starts),
        mean_prompt_tokens=_mean([each.prompt_tokens for each in done if each.prompt_tokens]),
        turns=_by_turn(done),
    )


def _by_turn(done: Sequence[Record]) -> tuple[TurnFigures, ...]:
    by_turn: dict[int, list[Record]] = {}
    for record in done:
        by_turn.setdefault(record.turn, []).append(record)
    if len(by_turn) < 2:
        return ()
    return tuple(
        TurnFigures(
            turn + 1,
            len(each),
            _quantiles(record.ttft_ns for record in each),
            _quantiles(record.tpot_ns for record in each),
            _quantiles(record.e2e_ns for record in each),
            _mean([record.prompt_tokens for record in each if record.prompt_tokens]),
            _mean([record.cached_tokens for record in each if record.cached_tokens is not None]),
        )
        for turn, each in sorted(by_turn.items())
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _pace(due_ns: Sequence[int]) -> float | None:
    span = max(due_ns) - min(due_ns) if due_ns else 0
    return (len(due_ns) - 1) / span * 1e9 if span else None


def acceptance_of(
    records: Sequence[Record],
    counters: Acceptance | None = None,
    written: Written | None = None,
) -> AcceptanceSummary | None:
    """From the counts that came with the answers. Without those, from the server's own counters,
    which may include requests of others and cannot be split by category or temperature. `written`:
    by the same counters, in how much text."""
    counted = [each for each in records if each.acceptance and each.acceptance.num_draft_tokens]
    total = Acceptance.total(each.acceptance for each in counted) if counted else counters
    if total is None or total.rate is None:
        return None
    rates = [each.acceptance.rate or 0.0 for each in counted if each.acceptance is not None]
    p10, p50, p90 = (percentile(rates, q) if rates else None for q in (0.10, 0.50, 0.90))
    if counted:  # answers without a single draft are steps without one too
        reported = [each for each in records if each.acceptance is not None]
        num_tokens = sum(each.completion_tokens or 0 for each in reported)
        written = Written(num_tokens, len(reported))
    return AcceptanceSummary(
        rate=total.rate,
        share_drafted=None
        if written is None
        else total.share_drafted(written.num_tokens, written.num_texts),
        length=total.length,
        p10=p10,
        p50=p50,
        p90=p90,
        num_requests=len(counted),
        per_position=total.rate_per_position,
        by_category=_rates_by(counted, lambda each: each.category),
        by_temperature=_rates_by(counted, lambda each: temperature_band(each.temperature)),
    )


def meets(record: Record, slo: Mapping[str, float]) -> bool:
    """Whether a request met every limit, in ms. A text of one token has no time per token and
    meets any."""
    times = {"ttft": record.ttft_ns, "tpot": record.tpot_ns, "e2e": record.e2e_ns}
    return all((times[name] or 0) / 1e6 <= limit for name, limit in slo.items())


def quantiles(times_ms: Sequence[float]) -> tuple[QuantileEstimate, ...]:
    """P50, P95 and P99 with their intervals; () without any times."""
    estimates = []
    for q in QUANTILES if times_ms else ():
        low, high = percentile_interval(times_ms, q) or (None, None)
        estimates.append(QuantileEstimate(q, percentile(times_ms, q), low, high))
    return tuple(estimates)


def _quantiles(times_ns: Iterable[float | None]) -> tuple[QuantileEstimate, ...]:
    return quantiles([ns / 1e6 for ns in times_ns if ns is not None])


def _rates_by(records: Sequence[Record], key: Callable[[Record], str]) -> dict[str, float]:
    groups: dict[str, list[Acceptance | None]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record.acceptance)
    return {name: Acceptance.total(each).rate or 0.0 for name, each in sorted(groups.items())}

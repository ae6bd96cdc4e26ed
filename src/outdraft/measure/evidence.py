"""From the records of two arms to the evidence a verdict is made of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from outdraft.decide.evidence import Costs, Equivalence, Evidence, Memory, Pairing
from outdraft.goodput import break_even_rate
from outdraft.measure.costs import costs_of
from outdraft.measure.summary import acceptance_of, added
from outdraft.records import AcceptanceCounts, Record
from outdraft.stats import (
    DRAWS,
    MIN_BLOCKS,
    Pair,
    Ratio,
    Throughput,
    median_ratio,
    pairs_needed,
    percentile_ratio,
    throughput_ratio,
)
from outdraft.workload.temperatures import temperature_band

_FEWEST_PER_STRATUM = 2 * MIN_BLOCKS  # pairs; with fewer a part of the traffic is not judged

Twins = tuple[Record, Record]  # the same request in the baseline and in the candidate
Measure = Callable[[Twins], tuple[float, float] | None]


def make_evidence(
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    *,
    level: float,
    margin: float,
    noise_floor: float = 0.0,
    problems: Sequence[str] = (),
    is_valid: bool = True,
    ttft_bound: bool = False,
    seed: int = 0,
    same_texts: bool = True,
    counted: AcceptanceCounts | None = None,
    load: str = "this load",
    memory: Memory | None = None,
    pairing: Pairing | None = None,
) -> Evidence:
    """`level` of every interval; parts of the traffic share the error, so that many of them do
    not make a false one likely. `same_texts`: the arms were asked the very same, so that greedy
    texts should agree. `counted`: what the candidate's own counters say of drafts, for servers
    whose answers do not tell."""
    twins = _twins(baseline, candidate)
    blocks = _by_block(twins)
    sent = [each for each in (*baseline, *candidate) if not each.is_warmup]
    tokens = [each.completion_tokens or 0 for pair in twins for each in pair]
    e2e = _ratio(blocks, _end_to_end, level, seed)
    tpot = _ratio(blocks, _per_token, level, seed)
    costs = _costs([each for _, each in twins], candidate, counted, tpot)
    return Evidence(
        e2e=e2e,
        tpot=tpot,
        ttft=_ratio(blocks, _first_token, level, seed),
        throughput=_throughput(blocks, level, seed),
        p99=_tail(blocks, level, seed),
        by_category=_strata(twins, lambda each: each.category, level, seed),
        by_temperature=_strata(twins, lambda each: temperature_band(each.temperature), level, seed),
        acceptance=acceptance_of([each for _, each in twins], counted),
        mean_output_tokens=sum(tokens) / len(tokens) if tokens else None,
        temperatures=tuple(sorted({each.temperature for each in sent})),
        noise_floor=noise_floor,
        equivalence=compare_texts(twins) if same_texts else None,
        error_rate=sum(not each.ok for each in sent) / len(sent) if sent else 0.0,
        problems=tuple(problems),
        is_valid=is_valid,
        more_requests=None if e2e is None else _more(e2e, max(margin, noise_floor)),
        ttft_bound=ttft_bound,
        costs=costs,
        break_even=_break_even(costs, load),
        memory=memory,
        pairing=pairing,
    )


def _costs(
    told: Sequence[Record],
    sent: Sequence[Record],
    counted: AcceptanceCounts | None,
    tpot: Ratio | None,
) -> Costs | None:
    """The server's counters also have requests without a twin, and know nothing of warm-up."""
    if tpot is None:
        return None
    counts = added(told)
    if not counts.num_drafts and counted is not None:
        counts, told = counted, [each for each in sent if _counts(each)]
    num_tokens = sum(each.completion_tokens or 0 for each in told)
    return costs_of(counts, num_tokens, len(told), tpot.estimate)


def _break_even(costs: Costs | None, load: str) -> dict[str, float]:
    needed = None if costs is None else break_even_rate(costs.k, costs.round)
    return {} if needed is None else {load: needed}


def ratio_of(
    name: str,
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    *,
    level: float,
    seed: int = 0,
    draws: int = DRAWS,
) -> Ratio | None:
    """One of e2e, tpot, ttft, throughput and p99, without the rest of the evidence."""
    blocks = _by_block(_twins(baseline, candidate))
    if name == "throughput":
        return _throughput(blocks, level, seed)
    if name == "p99":
        return _tail(blocks, level, seed)
    measures = {"e2e": _end_to_end, "tpot": _per_token, "ttft": _first_token}
    return _ratio(blocks, measures[name], level, seed, draws)


def compare_texts(twins: Sequence[Twins]) -> Equivalence | None:
    """Greedy texts only: at other temperatures two servers draw as they like."""
    greedy = [
        (one.text, other.text)
        for one, other in twins
        if one.temperature == 0 and one.text is not None and other.text is not None
    ]
    if not greedy:
        return None
    places = [_first_difference(a or "", b or "") for a, b in greedy if a != b]
    return Equivalence(len(greedy), len(greedy) - len(places), tuple(places))


def _first_difference(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _twins(baseline: Sequence[Record], candidate: Sequence[Record]) -> list[Twins]:
    """Requests that succeeded in both arms; one that failed in either tells of no speed."""
    others = {(each.block, each.index): each for each in candidate if _counts(each)}
    found = []
    for each in baseline:
        other = others.get((each.block, each.index))
        if other is not None and _counts(each) and other.prompt_id == each.prompt_id:
            found.append((each, other))
    return found


def _counts(record: Record) -> bool:
    return record.ok and not record.is_warmup


def _by_block(twins: Sequence[Twins]) -> dict[int, list[Twins]]:
    blocks: dict[int, list[Twins]] = {}
    for pair in twins:
        blocks.setdefault(pair[0].block, []).append(pair)
    return blocks


# ---------------------------------------------------------------- what is compared


def _end_to_end(pair: Twins) -> tuple[float, float] | None:
    """The candidate's as if its text had the length of the baseline's: a shorter one is no gain."""
    one, other = pair
    if not one.e2e_ns or not other.e2e_ns:
        return None
    if one.completion_tokens == other.completion_tokens:
        return float(one.e2e_ns), float(other.e2e_ns)
    if not one.completion_tokens or not other.completion_tokens:
        return None
    return float(one.e2e_ns), other.e2e_ns * one.completion_tokens / other.completion_tokens


def _per_token(pair: Twins) -> tuple[float, float] | None:
    one, other = pair[0].tpot_ns, pair[1].tpot_ns
    return (one, other) if one and other else None


def _first_token(pair: Twins) -> tuple[float, float] | None:
    one, other = pair[0].ttft_ns, pair[1].ttft_ns
    return (float(one), float(other)) if one and other else None


def _pairs(blocks: Mapping[int, Sequence[Twins]], measure: Measure) -> list[list[Pair]]:
    found = []
    for _, members in sorted(blocks.items()):
        values = [(pair, measure(pair)) for pair in members]
        found.append([Pair(pair[0].prompt_id, *both) for pair, both in values if both is not None])
    return [block for block in found if block]


def _ratio(
    blocks: Mapping[int, Sequence[Twins]],
    measure: Measure,
    level: float,
    seed: int,
    draws: int = DRAWS,
) -> Ratio | None:
    pairs = _pairs(blocks, measure)
    return median_ratio(pairs, level=level, draws=draws, seed=seed) if pairs else None


def _tail(blocks: Mapping[int, Sequence[Twins]], level: float, seed: int) -> Ratio | None:
    pairs = _pairs(blocks, _end_to_end)
    return percentile_ratio(pairs, 0.99, level=level, seed=seed) if pairs else None


def _throughput(blocks: Mapping[int, Sequence[Twins]], level: float, seed: int) -> Ratio | None:
    measured = []
    for members in blocks.values():
        rates = [_tokens_per_s([pair[arm] for pair in members]) for arm in (0, 1)]
        if all(rates):
            measured.append(Throughput(rates[0], rates[1]))
    return throughput_ratio(measured, level=level, seed=seed) if measured else None


def _tokens_per_s(records: Sequence[Record]) -> float:
    start = min(each.scheduled_ns for each in records)
    end = max(each.last_ns or 0 for each in records)
    return sum(each.completion_tokens or 0 for each in records) / max(end - start, 1) * 1e9


def _strata(
    twins: Sequence[Twins], key: Callable[[Record], str], level: float, seed: int
) -> dict[str, Ratio]:
    """Each part with enough of it; a lone part is the whole and says nothing of its own."""
    groups: dict[str, list[Twins]] = {}
    for pair in twins:
        groups.setdefault(key(pair[0]), []).append(pair)
    if len(groups) < 2:
        return {}
    shared = 1 - (1 - level) / len(groups)
    found = {}
    for name, members in sorted(groups.items()):
        if len(members) >= _FEWEST_PER_STRATUM:
            ratio = _ratio(_by_block(members), _end_to_end, shared, seed)
            if ratio is not None:
                found[name] = ratio
    return found


def _more(ratio: Ratio, margin: float) -> int | None:
    return pairs_needed(ratio, margin) or None

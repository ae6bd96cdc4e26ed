"""From the records of two arms to the evidence that a verdict is made of. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from outdraft.acceptance import Acceptance
from outdraft.decide.evidence import Evidence, named_parts
from outdraft.decide.texts import Agreement, Difference, first_difference
from outdraft.goodput import RoundCost, round_cost_from_speedup
from outdraft.measure.plateau import find_plateau, is_lead, tokens_per_s
from outdraft.measure.summary import acceptance_of
from outdraft.observe import Written
from outdraft.records import Record
from outdraft.stats.ratios import (
    MIN_BLOCKS,
    Pair,
    Ratio,
    Throughput,
    mean_ratio,
    percentile_ratio,
    throughput_ratio,
    total_ratio,
)
from outdraft.stats.sequential import pairs_needed
from outdraft.workload.temperatures import temperature_band

FLOOR_TEXTS = 16  # of the baseline, that are asked for again
_FLOOR_BATCH = 4  # at a time, where one at a time is the load
_BEFORE, _AFTER = 40, 80  # characters of an example around the first difference
_MIN_PAIRS_PER_PART = 2 * MIN_BLOCKS  # a part of the traffic with fewer is not judged

Twins = tuple[Record, Record]  # the same request to the baseline and to the candidate
Blocks = Mapping[int, Sequence[Twins]]
_Key = TypeVar("_Key")
RATIOS = ("e2e", "tpot", "ttft", "throughput", "p99", "total")
_TIMED = tuple(name for name in RATIOS if name != "throughput")


def make_evidence(
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    *,
    level: float,
    margin: float,
    noise_floor: float = 0.0,
    problems: Sequence[str] = (),
    seed: int = 0,
    same_texts: bool = True,
    counted: Acceptance | None = None,
    written: Written | None = None,
    **circumstances: Any,
) -> Evidence:
    """`level` is that of the intervals over the whole traffic. The parts of the traffic and the P99
    together are allowed the same error once more: half of either counts, because a false result
    lies on one side of its interval. `same_texts`: both arms got identical requests, so greedy
    texts should agree. `counted` and `written`: the candidate's own counters, for servers whose
    answers do not report acceptance. `circumstances`: fields of the evidence, taken as they are."""
    twins = _twins(baseline, candidate)
    blocks = _by_block(twins)
    groupings = [_group(twins, part_of) for part_of in (_category, _band)]
    num_parts = sum(len(parts) for parts in groupings if len(parts) > 1)
    part_level = 1 - (1 - level) / (num_parts + 1)  # one more for the P99
    levels = dict.fromkeys(RATIOS, level) | {"p99": part_level}
    ratios: dict[str, Any] = {name: _ratio(name, blocks, levels[name], seed) for name in _TIMED}
    ratios["throughput"] = _throughput(baseline, candidate, blocks, level)
    e2e, tpot = ratios["e2e"], ratios["tpot"]
    sent = [each for each in (*baseline, *candidate) if not each.is_warmup]
    tokens = [each.completion_tokens or 0 for pair in twins for each in pair]
    answered = [each for _, each in twins]
    return Evidence(
        **ratios,
        by_category=_by_part("e2e", groupings[0], part_level),
        by_temperature=_by_part("e2e", groupings[1], part_level),
        tpot_by_part=named_parts(*(_by_part("tpot", parts, part_level) for parts in groupings)),
        part_level=part_level,
        acceptance=acceptance_of(answered, counted, written),
        mean_output_tokens=sum(tokens) / len(tokens) if tokens else None,
        temperatures=tuple(sorted({each.temperature for each in sent})),
        noise_floor=noise_floor,
        texts=compare_texts(twins) if same_texts else None,
        error_rate=sum(not each.ok for each in sent) / len(sent) if sent else 0.0,
        problems=tuple(problems),
        more_requests=None if e2e is None else pairs_needed(e2e, max(margin, noise_floor)) or None,
        costs=_round_cost(answered, candidate, counted, written, tpot),
        **circumstances,
    )


def ratio_of(
    name: str,
    baseline: Sequence[Record],
    candidate: Sequence[Record],
    *,
    level: float,
) -> Ratio | None:
    """One of RATIOS, without the rest of the evidence."""
    blocks = _by_block(_twins(baseline, candidate))
    if name == "throughput":
        return _throughput(baseline, candidate, blocks, level)
    return _ratio(name, blocks, level)


def text_agreement(baseline: Sequence[Record], candidate: Sequence[Record]) -> Agreement | None:
    """Of two arms, or of a server's texts and its own to the same requests, sent again."""
    return compare_texts(_twins(baseline, candidate))


def other_concurrency(concurrency: int | None) -> int:
    """At which requests are sent again for the floor: another batch size than before."""
    return _FLOOR_BATCH if concurrency == 1 else 1


def compare_texts(twins: Sequence[Twins]) -> Agreement | None:
    """Greedy texts only: at other temperatures two servers draw differently."""
    greedy = [
        (one, one.text, other.text)
        for one, other in twins
        if one.temperature == 0 and one.text is not None and other.text is not None
    ]
    if not greedy:
        return None
    others = [(first_difference(a, b), one, a, b) for one, a, b in greedy if a != b]
    example = None
    if others:
        at, one, *texts = min(others, key=lambda each: each[0])
        example = Difference(one.prompt_id, one.category, at, *(_around(at, x) for x in texts))
    places = tuple(at for at, *_ in others)
    return Agreement(len(greedy), len(greedy) - len(others), places, example)


def _around(at: int, text: str) -> str:
    start, end = max(at - _BEFORE, 0), at + _AFTER
    cut = "…" if start else "", "…" if end < len(text) else ""
    return f"{cut[0]}{text[start:end]}{cut[1]}"


def _round_cost(
    answered: Sequence[Record],
    sent: Sequence[Record],
    counted: Acceptance | None,
    written: Written | None,
    tpot: Ratio | None,
) -> RoundCost | None:
    """From the counts of the answers, else from the server's counters. Those begin after the
    warm-up and include requests without a twin, leads and fillers: so must the tokens."""
    if tpot is None:
        return None
    counts = Acceptance.total(each.acceptance for each in answered)
    if counts.num_drafts or counted is None:
        return _cost_of(counts, answered, tpot)
    if written is not None:
        return round_cost_from_speedup(
            counted, written.num_tokens, written.num_texts, tpot.estimate
        )
    if any(map(is_lead, sent)):  # how much was written besides is not known
        return None
    return _cost_of(counted, [each for each in sent if _is_measured(each)], tpot)


def _cost_of(counts: Acceptance, texts: Sequence[Record], tpot: Ratio) -> RoundCost | None:
    num_tokens = sum(each.completion_tokens or 0 for each in texts)
    return round_cost_from_speedup(counts, num_tokens, len(texts), tpot.estimate)


def _twins(baseline: Sequence[Record], candidate: Sequence[Record]) -> list[Twins]:
    """Requests that succeeded in both arms; one that failed in either has no speedup."""
    others = {(each.block, each.index): each for each in candidate if _is_measured(each)}
    pairs = [(each, others.get((each.block, each.index))) for each in baseline]
    return [
        (one, other)
        for one, other in pairs
        if other is not None and _is_measured(one) and other.prompt_id == one.prompt_id
    ]


def _is_measured(record: Record) -> bool:
    return record.ok and not record.is_warmup


def _group(twins: Sequence[Twins], key: Callable[[Record], _Key]) -> dict[_Key, list[Twins]]:
    groups: dict[_Key, list[Twins]] = {}
    for pair in twins:
        groups.setdefault(key(pair[0]), []).append(pair)
    return groups


def _by_block(twins: Sequence[Twins]) -> dict[int, list[Twins]]:
    return _group(twins, lambda each: each.block)


def _category(record: Record) -> str:
    return record.category


def _band(record: Record) -> str:
    return temperature_band(record.temperature)


def _by_part(name: str, parts: Mapping[str, Sequence[Twins]], level: float) -> dict[str, Ratio]:
    """One of RATIOS of each part with enough pairs. A single part is the whole traffic and gets
    none."""
    if len(parts) < 2:
        return {}
    ratios = {
        part: _ratio(name, _by_block(members), level)
        for part, members in sorted(parts.items())
        if len(members) >= _MIN_PAIRS_PER_PART
    }
    return {part: ratio for part, ratio in ratios.items() if ratio is not None}


def _ratio(name: str, blocks: Blocks, level: float, seed: int = 0) -> Ratio | None:
    pairs = _pairs(blocks, _TIMES.get(name, _end_to_end))
    if not pairs:
        return None
    if name == "total":
        return total_ratio(pairs, level=level)
    if name == "p99":
        return percentile_ratio(pairs, 0.99, level=level, seed=seed)
    return mean_ratio(pairs, level=level)


def _throughput(
    baseline: Sequence[Record], candidate: Sequence[Record], blocks: Blocks, level: float
) -> Ratio | None:
    """On the plateaus of the blocks; of the twins alone where an arm's block has none."""
    arms = [_records_by_block(arm) for arm in (baseline, candidate)]
    measured = []
    for block, twins in blocks.items():
        sides = [arm[block] for arm in arms]
        if not all(map(find_plateau, sides)):
            sides = [[each[side] for each in twins] for side in (0, 1)]
        rates = [tokens_per_s(side) for side in sides]
        if all(rates):
            measured.append(Throughput(*rates))
    return throughput_ratio(measured, level=level) if measured else None


def _records_by_block(records: Sequence[Record]) -> dict[int, list[Record]]:
    blocks: dict[int, list[Record]] = {}
    for each in records:
        blocks.setdefault(each.block, []).append(each)
    return blocks


def _pairs(blocks: Blocks, times: Callable[[Record, Record], _Times]) -> list[list[Pair]]:
    """The blocks that have pairs with both times, in order."""
    pairs = [
        [
            Pair(record.prompt_id, one, other, record.category)
            for record, one, other in ((each[0], *times(*each)) for each in members)
            if one and other
        ]
        for _, members in sorted(blocks.items())
    ]
    return [block for block in pairs if block]


_Times = tuple[float | None, float | None]


def _end_to_end(one: Record, other: Record) -> _Times:
    """The candidate's time is that of a text as long as the baseline's, at the pace of its own:
    neither a shorter text is a gain, nor a longer one, over which its first token would be shared.
    """
    wanted, written = one.completion_tokens, other.completion_tokens
    if not other.e2e_ns or wanted == written:
        return one.e2e_ns, other.e2e_ns
    if not wanted or not written:
        return None, None
    if other.ttft_ns is None or other.tpot_ns is None:  # of one token: no pace to go by
        return one.e2e_ns, other.e2e_ns * wanted / written
    return one.e2e_ns, other.ttft_ns + other.tpot_ns * (wanted - 1)


_TIMES: Mapping[str, Callable[[Record, Record], _Times]] = {
    "e2e": _end_to_end,
    "tpot": lambda one, other: (one.tpot_ns, other.tpot_ns),
    "ttft": lambda one, other: (one.ttft_ns, other.ttft_ns),
}

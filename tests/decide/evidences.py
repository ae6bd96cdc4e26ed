"""Evidence for these tests: by hand, and any that there could be."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from outdraft.decide.evidence import AcceptanceSummary, Evidence
from outdraft.decide.texts import Agreement
from outdraft.goodput import RoundCost
from outdraft.plan.findings import Pairing, Shares
from outdraft.stats.ratios import Ratio


def between(low: float, high: float, num_pairs: int = 240) -> Ratio:
    return Ratio(math.sqrt(low * high), low, high, 0.95, num_pairs, 20)


def about(estimate: float) -> Ratio:
    return between(estimate / 1.001, estimate * 1.001)


TOO_FEW = Ratio(1.4, None, None, 0.95, 36, 3)  # blocks for an interval

_speedups = st.floats(0.3, 3.0)
shares = st.floats(0.0, 1.0)
margins = st.floats(0.0, 0.3)
intervals = st.builds(lambda a, b: between(min(a, b), max(a, b)), _speedups, _speedups)
ratios = intervals | st.just(TOO_FEW)

_acceptances = st.builds(
    AcceptanceSummary,
    rate=shares,
    p10=st.none() | shares,
    p50=st.none() | shares,
    p90=st.none() | shares,
)
# Everything that only checks look at.
circumstances = st.fixed_dictionaries(
    {
        "acceptance": st.none() | _acceptances,
        "mean_output_tokens": st.none() | st.floats(1, 1000),
        "temperatures": st.lists(st.floats(0, 2), max_size=3).map(tuple),
        "ttft_bound": st.booleans(),
        "tpot": st.none() | ratios,
        "ttft": st.none() | ratios,
        "memory": st.none() | st.builds(Shares, shares, shares, shares),
        "pairing": st.none()
        | st.builds(Pairing, st.none() | st.floats(1, 50), st.booleans(), st.booleans()),
        "costs": st.none() | st.builds(RoundCost, st.integers(1, 8), st.floats(0.5, 20)),
        "unquantized_acceptance": st.none() | shares,
        "load": st.sampled_from(["1 req/s", "8 req/s"]),
    }
)
_counts = st.integers(1, 40).flatmap(lambda num: st.tuples(st.just(num), st.integers(0, num)))
agreements = st.builds(
    lambda counts, at: Agreement(*counts, (at,) * (counts[0] - counts[1])),
    _counts,
    st.integers(0, 99),
)
PARTS = ("category chat", "category code", "temperature 0", "temperature 0.7-1")
evidences = st.builds(
    Evidence,
    e2e=st.none() | ratios,
    p99=st.none() | ratios,
    total=st.none() | ratios,
    throughput=st.none() | ratios,
    concurrency=st.none() | st.sampled_from([1, 64]),
    has_idle_slots=st.booleans(),
    tpot_by_part=st.dictionaries(st.sampled_from(PARTS), ratios),
    by_category=st.dictionaries(st.sampled_from(["chat", "code", "qa"]), ratios),
    by_temperature=st.dictionaries(st.sampled_from(["0", "0.3-0.7", "0.7-1"]), ratios),
    noise_floor=st.just(0.0) | margins,
    error_rate=st.just(0.0) | shares,
    problems=st.lists(st.sampled_from(["the clock was set", "a field was refused"])).map(tuple),
    is_valid=st.booleans(),
    more_requests=st.none() | st.integers(1, 10_000),
    texts=st.none() | agreements,
    text_floor=st.none() | agreements,
    is_lossy=st.booleans(),
)

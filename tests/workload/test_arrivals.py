from __future__ import annotations

import json
import statistics
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import OptionError
from outdraft.workload.arrivals import gamma, poisson, ramp, read_trace, replay


def gaps(offsets: list[int]) -> list[float]:
    return [(b - a) / 1e9 for a, b in pairwise(offsets)]


@given(rate=st.floats(0.1, 1000), count=st.integers(0, 50), seed=st.integers(0, 5))
def test_in_order_and_reproducible(rate: float, count: int, seed: int) -> None:
    for offsets in (
        ramp(rate, rate, count),
        poisson(rate, count, seed),
        ramp(rate, 2 * rate, count),
    ):
        assert len(offsets) == count
        assert offsets == sorted(offsets)
        assert all(offset >= 0 for offset in offsets)
    assert poisson(rate, count, seed) == poisson(rate, count, seed)


def test_a_constant_rate_is_even() -> None:
    assert ramp(4, 4, 3) == [0, 250_000_000, 500_000_000]


@pytest.mark.parametrize(("burstiness", "spread"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gamma_keeps_the_rate_and_has_the_spread(burstiness: float, spread: float) -> None:
    """The deviation of a gamma gap over its mean is 1 / sqrt(shape)."""
    found = gaps(gamma(50, 20_000, 1, burstiness=burstiness))
    assert statistics.mean(found) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(found) * 50 == pytest.approx(spread, rel=0.05)


def test_ramp_speeds_up() -> None:
    found = gaps(ramp(1, 10, 100))
    assert found[0] > 0.8
    assert found[-1] == pytest.approx(0.1)
    assert found == sorted(found, reverse=True)


def test_replay_starts_at_zero_and_keeps_the_gaps() -> None:
    assert replay([1700000010.0, 1700000008.5, 1700000012.0]) == [0, 1_500_000_000, 3_500_000_000]
    assert replay([10.0, 12.0], speed=2) == [0, 1_000_000_000]
    assert replay([]) == []


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_positive(rate: float) -> None:
    with pytest.raises(OptionError, match="rate"):
        ramp(rate, rate, 1)


def test_burstiness_is_positive() -> None:
    with pytest.raises(OptionError, match="burstiness"):
        gamma(1, 1, 0, burstiness=0)


def written(folder: Path, *entries: Any, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text("\n".join(each if isinstance(each, str) else json.dumps(each)
                              for each in entries))  # fmt: skip
    return path


def test_times_alone_from_the_first_on(tmp_path: Path) -> None:
    path = written(tmp_path, {"timestamp": 12.5}, {"ts": 10}, "", {"Arrival_Time": "11"})
    assert read_trace(path) == ([0, 10**9, 2_500_000_000], None)
    assert read_trace(path, speed=2, at_most=2) == ([0, 500_000_000], None)


def test_prompts_come_at_their_own_times(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {"timestamp": "2026-05-01T10:00:03Z", "prompt": "last"},
        {"timestamp": "2026-05-01T10:00:00Z", "prompt": "first"},
        {"timestamp": "2026-05-01 10:00:01", "prompt": "second"},
    )
    offsets_ns, prompts = read_trace(path)
    assert offsets_ns == [0, 10**9, 3 * 10**9]
    assert prompts is not None
    said = [each.messages[0].content for each in prompts]
    assert said == ["first", "second", "last"]


def test_a_csv_file(tmp_path: Path) -> None:
    lines = ("TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:01:51.5,4808,10",
             "2023-11-16 18:01:50.0,110,27")  # fmt: skip
    path = written(tmp_path, *lines, name="t.csv")
    assert read_trace(path) == ([0, 1_500_000_000], None)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as Excel saves it
    assert read_trace(path) == ([0, 1_500_000_000], None)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((), "has no entries"),
        (({"timestamp": 1}, {"prompt": "x"}), "line 2: no timestamp; one of timestamp, ts"),
        (({"timestamp": "noon"},), "line 1: 'noon' is no time"),
        (({"timestamp": float("nan")},), "is no time"),
        (("[1]",), "entry 1: not an object"),
        (({"timestamp": 1}, "[1]"), "line 2: not an object"),
        (("{",), "line 1: not JSON"),
    ],
)
def test_what_is_no_trace(tmp_path: Path, entries: tuple[Any, ...], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_trace(written(tmp_path, *entries))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        read_trace(tmp_path / "none.jsonl")

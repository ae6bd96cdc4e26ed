from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import OptionError
from outdraft.workload.temperatures import (
    BANDS,
    assign_temperatures,
    band_limits,
    parse_mix,
    temperature_band,
)


def test_shares_in_percent() -> None:
    assert parse_mix("0.0:60%,0.8:40%") == ((0.0, 0.6), (0.8, 0.4))


def test_a_lone_temperature_is_all_of_it() -> None:
    assert parse_mix("0.7") == ((0.7, 1.0),)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "not TEMPERATURE"),
        ("hot", "'hot'"),
        ("0:60%,1:30%", "90 %"),
        ("0:50%,0:50%", "twice"),
        ("-1:100%", "-1"),
        ("nan", "nan"),
        ("0:0%,1:100%", "greater than 0"),
        ("0.2,0.4", "200 %"),
    ],
)
def test_refused_with_the_reason(text: str, word: str) -> None:
    with pytest.raises(OptionError, match=word):
        parse_mix(text)


@given(
    shares=st.lists(st.integers(1, 20), min_size=1, max_size=5),
    count=st.integers(0, 300),
    seed=st.integers(0, 9),
)
def test_shares_are_exact_to_one_request(shares: list[int], count: int, seed: int) -> None:
    mix = [(float(index), share / sum(shares)) for index, share in enumerate(shares)]
    assigned = assign_temperatures(mix, count, seed)
    assert len(assigned) == count
    counts = Counter(assigned)
    for temperature, share in mix:
        assert abs(counts[temperature] - share * count) < 1
    assert assigned == assign_temperatures(mix, count, seed)


@pytest.mark.parametrize("temperature", [0.0, 0.001, 0.3, 0.31, 0.7, 0.70001, 1.0, 1.5, 100.0])
def test_every_temperature_is_in_one_band(temperature: float) -> None:
    found = []
    for band in BANDS:
        above, up_to = band_limits(band)
        found += [band] if above < temperature <= up_to else []
    assert found == [temperature_band(temperature)]

from __future__ import annotations

from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact

from outdraft.stats.exact import chance_of_so_few

tries = st.integers(1, 60)


@given(data=st.data(), num=tries, other=tries)
def test_is_fishers(data: st.DataObject, num: int, other: int) -> None:
    hits, others = data.draw(st.integers(0, num)), data.draw(st.integers(0, other))
    table = [[hits, num - hits], [others, other - others]]
    expected = fisher_exact(table, alternative="less").pvalue
    assert chance_of_so_few(hits, num, others, other) == pytest.approx(expected, rel=1e-6)


def test_by_hand() -> None:
    assert chance_of_so_few(0, 3, 3, 3) == 1 / comb(6, 3)
    assert chance_of_so_few(8, 8, 8, 8) == 1
    assert chance_of_so_few(8, 8, 0, 8) == 1
    assert chance_of_so_few(0, 4000, 16, 16) < 1e-40

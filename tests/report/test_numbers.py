from __future__ import annotations

import math
from dataclasses import replace

import pytest

from outdraft.report import numbers
from outdraft.stats.ratios import Ratio

KNOWN = Ratio(1.84, 1.79, 1.9, 0.95, 240, 20)
FEW = Ratio(1.84, None, None, 0.95, 36, 3)


def test_ratios() -> None:
    assert numbers.times(KNOWN.estimate) == "1.84×"
    assert numbers.interval(KNOWN) == "[1.79, 1.90]"
    assert numbers.interval(FEW) == "no interval"
    assert numbers.pairs(KNOWN) == "n=240 in 20 blocks"
    assert numbers.pairs(replace(KNOWN, num_pairs=4, num_blocks=1)) == "n=4 in 1 block"
    assert numbers.count_of(12345) == "n=12,345"
    assert numbers.ratio_cells(KNOWN) == ("1.84×", "[1.79, 1.90]", "n=240")
    assert numbers.ratio_cells(None) == ("–", "–", "–")


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_not_known(value: float | None) -> None:
    for shown in (numbers.times, numbers.share, numbers.percent, numbers.rate):
        assert shown(value) == "–"


def test_units() -> None:
    assert numbers.percent(0.154) == "15\N{NO-BREAK SPACE}%"
    assert numbers.percent(0.9996) == "99.9\N{NO-BREAK SPACE}%"
    assert numbers.percent(1.0) == "100\N{NO-BREAK SPACE}%"
    assert numbers.percent(0.0004) == "0.04\N{NO-BREAK SPACE}%"
    assert numbers.percent(0.035) == "3.5\N{NO-BREAK SPACE}%"
    assert [numbers.milliseconds(each) for each in (1509.4, 22.94, 0.123)] == [
        "1,509", "22.9", "0.12"
    ]  # fmt: skip
    assert [numbers.rate(each) for each in (1234.5, 62.21, 1.5)] == ["1,234", "62.2", "1.50"]
    assert [numbers.size(each) for each in (2**31, 547 * 2**20, 5 * 2**40, 512)] == [
        "2 GiB", "547 MiB", "5 TiB", "0.5 KiB"
    ]  # fmt: skip
    assert [numbers.duration(each) for each in (9.6, 547, 7322)] == [
        "10 s", "9 min 7 s", "2 h 2 min"
    ]  # fmt: skip


def test_plain_values() -> None:
    texts = [numbers.plain(each) for each in (None, True, 0.12345, 49152.0, [1, "a"], (), "x", 7)]
    assert texts == ["none", "yes", "0.123", "49,152", "1, a", "none", "x", "7"]


def test_objectives() -> None:
    assert [numbers.objective_name(each) for each in ("tpot", "e2e")] == ["TPOT", "e2e"]

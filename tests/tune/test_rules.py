from __future__ import annotations

import pytest

from outdraft.records import Record
from outdraft.tune.rules import Objective

GOODPUT = Objective("goodput", {"ttft": 100.0})


def arm(*met: int) -> list[Record]:
    """Blocks of four requests, a second long each, of which so many meet the SLO."""
    return [
        Record("p", "chat", 0.0, "arm", block, at, 0, sent_ns=0,
               first_ns=5 * 10**7 if at < num else 2 * 10**8, last_ns=10**9, completion_tokens=9)
        for block, num in enumerate(met)
        for at in range(4)
    ]  # fmt: skip


def test_goodput_is_a_ratio_of_rates() -> None:
    found = GOODPUT.ratio(arm(2, 2, 2), arm(4, 4, 4))
    assert found is not None
    assert found.estimate == pytest.approx(2)


def test_blocks_in_which_only_one_met_it_count() -> None:
    """Meeting it now and then is worse than always, however those blocks look by themselves."""
    found = GOODPUT.ratio(arm(4, 4, 4, 4), arm(4, 0, 0, 0))
    assert found is not None
    assert found.num_blocks == 4
    assert found.estimate < 0.5
    better = GOODPUT.ratio(arm(0, 0), arm(4, 4))
    assert better is not None
    assert better.estimate == pytest.approx(8)


def test_where_nobody_met_it_there_is_no_ratio() -> None:
    assert GOODPUT.ratio(arm(0, 0), arm(0, 0)) is None

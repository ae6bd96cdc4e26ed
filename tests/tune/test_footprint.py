"""What the engines of a run take: near what was seen, and no more at a time than fits."""

from __future__ import annotations

import pytest

from outdraft.plan import PlanSettings, find_model, plan_memory
from outdraft.plan.models import TABLE
from outdraft.tune.footprint import memory_words, most_together, own_engine_bytes

GB = 10**9
SMOLLM2 = plan_memory(TABLE["smollm2-135m"], None, None, PlanSettings(2048))
PAIR = plan_memory(TABLE["llama-3.1-8b"], find_model("llama-3.2-1b"), None, PlanSettings(2048))


def test_a_process_with_smollm2() -> None:
    """Off with four texts at a time: 0.87 GB resident, of which 0.1 GB are files that all share."""
    assert own_engine_bytes(SMOLLM2, None, None, 2476) == pytest.approx(0.85 * GB, rel=0.05)


def test_what_makes_it_larger() -> None:
    off = own_engine_bytes(PAIR, None, None, 1000)
    assert off == pytest.approx(4 * 8.03 * GB, rel=0.03)
    assert own_engine_bytes(PAIR, "bfloat16", None, 1000) == pytest.approx(off / 2, rel=0.03)
    assert own_engine_bytes(PAIR, None, None, 9000) - off == 8000 * 2 * 131_072
    whole, packed = (own_engine_bytes(PAIR, None, each, 1000) for each in ("none", "int8"))
    assert off < packed < whole
    assert whole - off == pytest.approx(4 * 1.24 * GB, rel=0.03), "the tied embedding once"


def test_as_many_as_fit() -> None:
    sizes = [GB] * 6 + [2 * GB]
    assert most_together(sizes, None) is None
    assert most_together(sizes, 11 * GB) is None
    assert most_together(sizes, 9 * GB) == 3
    assert most_together(sizes, GB) == 2, "off, and what is compared with it"


def test_words() -> None:
    sizes = [GB] * 6 + [2 * GB]
    assert memory_words(sizes, 20 * GB, None) == (
        "7 engines side by side take about 8.00 GB of memory, 20.0 GB are free"
    )
    assert memory_words(sizes, None, None).endswith("of memory")
    assert memory_words(sizes, 9 * GB, 3) == (
        "3 engines side by side take about 4.00 GB of memory, 9.00 GB are free; the 7 of this run "
        "are too many: some are started again when needed"
    )

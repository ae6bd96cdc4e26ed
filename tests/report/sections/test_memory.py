from __future__ import annotations

import pytest

from outdraft.report.sections.memory import memory_parts, overflow
from outdraft.tune.results import MemoryResult


def test_parts_make_the_whole() -> None:
    parts = memory_parts(MemoryResult(target=50, draft=5, kv=25, free=20, total=100))
    assert [(each.key, each.num_bytes) for each in parts] == [
        ("target", 50), ("draft", 5), ("kv", 25), ("free", 20)
    ]  # fmt: skip
    assert sum(each.share for each in parts) == pytest.approx(1)


def test_what_has_no_name_is_other() -> None:
    parts = memory_parts(MemoryResult(target=50, draft=0, kv=25, free=15, total=100))
    assert {each.key: each.num_bytes for each in parts}["other"] == 10
    assert parts[-1].key == "free"


def test_more_than_there_is() -> None:
    memory = MemoryResult(target=90, draft=10, kv=50, free=-50, total=100)
    assert overflow(memory) == 50
    parts = memory_parts(memory)
    assert sum(each.share for each in parts) == pytest.approx(1)
    assert all(each.share >= 0 for each in parts)


def test_without_a_device_only_weights_are_shown() -> None:
    memory = MemoryResult(target=90, draft=10, kv=0, free=0, total=0)
    assert overflow(memory) == 0
    assert [(each.key, each.share) for each in memory_parts(memory)] == [
        ("target", 0.9),
        ("draft", 0.1),
    ]
    assert [each.share for each in memory_parts(MemoryResult(0, 0, 0, 0, 0))] == [0, 0]

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from outdraft.records import AcceptanceCounts
from outdraft.speculation import Speculation
from outdraft.tune.arm import Load
from outdraft.tune.journal import Journal
from outdraft.tune.outcome import acceptance_results, level_of
from outdraft.tune.standing import Standing

from .test_race import block

ARM = Speculation("ngram", k=4)
LOAD = Load(concurrency=1)


def test_every_part_of_the_acceptance_has_its_count(tmp_path: Path) -> None:
    told = AcceptanceCounts(10, 40, 20, (8, 6, 4, 2))
    plain = block(ARM, 0)
    kinds = (("chat", 0.0), ("chat", 0.0), ("code", 0.8))
    records = tuple(
        replace(each, category=category, temperature=heat, acceptance=told)
        for each, (category, heat) in zip(plain.records[:3], kinds, strict=True)
    )
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        journal.add(replace(plain, records=records))
        (found,) = acceptance_results([ARM], [LOAD], journal)
    assert found.name == "ngram"
    assert found.num_requests == 3
    assert found.num_by_category == {"chat": 2, "code": 1}
    assert list(found.num_by_temperature.values()) == [2, 1]
    assert found.num_by_temperature.keys() == found.by_temperature.keys()


def test_without_a_verdict_the_finalists_still_share_the_error() -> None:
    arms = tuple(replace(ARM, k=k) for k in (2, 3, 4, 5, 6))
    assert level_of(Standing(finalists=arms)) == 0.99
    assert level_of(Standing()) == 0.95

from __future__ import annotations

from outdraft.measure.failures import failures_of
from outdraft.records import Record


def records(num: int, num_failed: int, *, is_warmup: bool = False) -> list[Record]:
    return [
        Record("p", "chat", 0.0, "arm", 0, at, 0, sent_ns=0, first_ns=1, last_ns=2,
               error="http 503: later" if at < num_failed else None, is_warmup=is_warmup)
        for at in range(num)
    ]  # fmt: skip


def test_one_arm_with_too_many_is_enough() -> None:
    problems, few = failures_of({"off": records(40, 0), "ngram k=2": records(40, 3)})
    assert not few
    assert problems == ["ngram k=2: 3 of 40 requests failed (7.5%): http 503 × 3; at most 5% may"]


def test_a_few_are_told_and_warm_up_does_not_count() -> None:
    sent = [*records(40, 2), *records(4, 4, is_warmup=True)]
    problems, few = failures_of({"off": sent})
    assert few
    assert problems == ["off: 2 of 40 requests failed (5.0%): http 503 × 2"]

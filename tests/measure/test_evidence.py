from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import Difference
from outdraft.measure.evidence import compare_texts, make_evidence, ratio_of, text_agreement
from outdraft.observe import Written
from outdraft.records import Record

from .made import accepted, done, failed


def arm(e2e: float, blocks: int = 6, size: int = 4, **fields: Any) -> list[Record]:
    """Times rise with the place in a block, from `e2e` on."""
    return [
        replace(
            done(index, e2e=e2e * (1 + index / 10), block=block, at=1000 * block, **fields),
            prompt_id=f"p{block}-{index}",
        )
        for block in range(blocks)
        for index in range(size)
    ]


def evidence(one: list[Record], other: list[Record], **options: Any) -> Evidence:
    return make_evidence(one, other, **{"level": 0.95, "margin": 0.01, **options})


def estimate(found: Evidence) -> float:
    assert found.e2e is not None
    return found.e2e.estimate


def test_each_ratio_by_hand() -> None:
    found = evidence(arm(200, ttft=50), arm(100, ttft=40))
    assert found.e2e is not None
    assert (found.e2e.num_pairs, found.e2e.num_blocks) == (24, 6)
    assert found.e2e.estimate == pytest.approx(2)
    assert found.e2e.low == pytest.approx(2)
    assert found.ttft is not None
    assert found.ttft.estimate == pytest.approx(50 / 40)
    assert found.tpot is not None  # six times each, without one of the highest and the lowest
    product = (150 / 60 * 210 / 90) ** 5 * (170 / 70 * 190 / 80) ** 6
    assert found.tpot.estimate == pytest.approx(product ** (1 / 22))
    assert found.throughput is not None  # a block ends with its longest
    assert found.throughput.estimate == pytest.approx(2)
    assert found.p99 is None, "24 pairs know no P99"
    assert found.error_rate == 0
    assert found.mean_output_tokens == 11


def test_pairs_are_found_by_block_and_place_in_any_order() -> None:
    one, other = arm(200), arm(100)
    assert evidence(one, other[::-1]) == evidence(one, other)
    elsewhere = [replace(each, block=each.block + 100) for each in other]
    assert evidence(one, elsewhere).e2e is None


def test_another_prompt_is_no_twin() -> None:
    other = [replace(each, prompt_id="q") if each.index else each for each in arm(100)]
    found = evidence(arm(200), other).e2e
    assert found is not None
    assert found.num_pairs == 6


def test_what_failed_in_either_arm_is_left_out_of_both() -> None:
    one, other = arm(200), arm(100)
    one[0] = failed(0, block=0)
    other[1] = replace(other[1], last_ns=10**12, error="stream ended early")
    found = evidence(one, other)
    assert found.e2e is not None
    assert found.e2e.num_pairs == 22
    assert estimate(found) == pytest.approx(2)
    assert found.error_rate == pytest.approx(2 / 48)


def test_warm_up_is_left_out() -> None:
    slow = [replace(each, block=-1, is_warmup=True) for each in arm(9000, blocks=1)]
    assert evidence([*slow, *arm(200)], [*slow, *arm(100)]) == evidence(arm(200), arm(100))


def test_a_shorter_text_is_no_gain() -> None:
    """Half the text in half the time: the same speed."""
    found = evidence(arm(210, ttft=10), arm(110, ttft=10, completion_tokens=6))
    assert estimate(found) == pytest.approx(1, rel=0.1)
    # One token has no pace of its own: its time for each.
    assert estimate(evidence(arm(220), arm(100, completion_tokens=1))) == pytest.approx(0.2)


@given(
    wanted=st.integers(1, 300), written=st.integers(2, 300), ttft=st.integers(1, 500),
    pace=st.integers(1, 100),
)  # fmt: skip
def test_nor_is_one_of_any_other_length(wanted: int, written: int, ttft: int, pace: int) -> None:
    """A server of one speed, whatever the lengths of its texts: no gain, and no loss."""

    def arm_of(tokens: int) -> list[Record]:
        e2e = ttft + pace * (tokens - 1)
        return [done(0, e2e=e2e, ttft=ttft, completion_tokens=tokens, block=b) for b in range(2)]

    found = ratio_of("e2e", arm_of(wanted), arm_of(written), level=0.95)
    assert found is not None
    assert found.estimate == pytest.approx(1, rel=1e-6)


def test_one_without_a_count_of_tokens_beside_one_with_tells_nothing() -> None:
    assert evidence(arm(200), arm(100, completion_tokens=None)).e2e is None
    both = evidence(arm(200, completion_tokens=None), arm(100, completion_tokens=None))
    assert estimate(both) == pytest.approx(2)


def test_the_tail_has_one_unit_though_some_texts_differ_in_length() -> None:
    """The slowest two in a hundred are those whose length differs; they must stay the slowest."""

    def mixed(e2e: float, odd_e2e: float, odd_tokens: int) -> list[Record]:
        return [
            done(index, e2e=odd_e2e, block=index // 50, completion_tokens=odd_tokens)
            if index % 50 == 7
            else done(index, e2e=e2e, block=index // 50)
            for index in range(400)
        ]

    found = evidence(mixed(100, 1000, 20), mixed(50, 4000, 40))
    assert estimate(found) == pytest.approx(2)
    assert found.p99 is not None
    # 20 of the 40 tokens: the first after 400 ms, 3600 ms for the 39 others.
    assert found.p99.estimate == pytest.approx(1000 / (400 + 3600 * 19 / 39))


class TestParts:
    def mixed(self, cold: float, hot: float) -> list[Record]:
        records = arm(100, blocks=8, size=10)
        return [
            replace(
                each,
                temperature=0.9 if each.index % 2 else 0.0,
                category="code" if each.index < 5 else "chat",
                last_ns=each.scheduled_ns + int((hot if each.index % 2 else cold) * 1e6),
            )
            for each in records
        ]

    def test_each_has_its_ratio_at_a_level_that_allows_for_their_number(self) -> None:
        found = evidence(self.mixed(100, 100), self.mixed(50, 200), level=0.96)
        assert found.by_temperature.keys() == {"0", "0.7-1"}
        assert found.by_temperature["0"].estimate == pytest.approx(2)
        assert found.by_temperature["0.7-1"].estimate == pytest.approx(0.5)
        assert found.by_temperature["0"].num_pairs == 40
        levels = [each.level for each in found.by_temperature.values()]
        # Two temperatures, two categories and the P99 share an error of 0.04.
        assert levels == pytest.approx([0.992, 0.992])
        assert found.part_level == pytest.approx(0.992)
        assert found.by_category.keys() == {"chat", "code"}
        assert found.temperatures == (0.0, 0.9)

    def test_each_has_its_pace(self) -> None:
        """Whole times may gain by a shorter wait; first tokens are as late here as before."""
        found = evidence(self.mixed(100, 100), self.mixed(50, 200))
        assert found.tpot_by_part.keys() == found.parts.keys()
        pace = found.tpot_by_part["temperature 0"]
        assert found.by_temperature["0"].estimate == pytest.approx(2)
        assert 2.2 < pace.estimate < 2.6
        assert pace.level == found.part_level

    def test_a_lone_part_is_the_whole(self) -> None:
        found = evidence(arm(200), arm(100))
        assert (found.by_category, found.by_temperature) == ({}, {})
        assert found.tpot_by_part == {}

    def test_a_part_with_too_few_is_not_judged(self) -> None:
        def few(e2e: float) -> list[Record]:
            return [
                replace(each, category="rare" if each.index == 0 and each.block < 6 else "chat")
                for each in arm(e2e, blocks=8, size=10)
            ]

        assert evidence(few(200), few(100)).by_category.keys() == {"chat"}


class TestTexts:
    def test_shares_and_places(self) -> None:
        texts = [("same", "same"), ("abcd", "abXd"), ("abc", "abcd"), ("", "x")]
        twins = [(done(text=a), done(text=b)) for a, b in texts]
        found = compare_texts(twins)
        assert found is not None
        assert (found.num_compared, found.num_identical) == (4, 1)
        assert found.first_differences == (2, 3, 0)
        assert found.share == 0.25

    def test_the_example_is_the_one_that_parts_first(self) -> None:
        early, late = "x" * 50 + "y" * 200, "x" * 60 + "z" * 200
        texts = [("x" * 250, late), ("x" * 250, early), ("same", "same")]
        twins = [(done(n, text=a), done(n, text=b)) for n, (a, b) in enumerate(texts)]
        found = compare_texts(twins)
        assert found is not None
        assert found.example == Difference(
            "p1", "chat", 50, f"…{'x' * 120}…", f"…{'x' * 40}{'y' * 80}…"
        )
        ends = compare_texts([(done(text="abc"), done(text="ab"))])
        assert ends is not None
        assert ends.example == Difference("p0", "chat", 2, "abc", "ab")

    def test_the_floor_is_of_the_baseline_and_itself(self) -> None:
        one = arm(2)
        again = [replace(each, text="near tie" if each.index else each.text) for each in one[:4]]
        floor = text_agreement(one, again)
        assert floor is not None
        assert floor.num_compared == 4
        assert floor.num_identical == sum(each.index == 0 for each in one[:4])
        assert text_agreement(one, []) is None
        assert evidence(one, arm(1), text_floor=floor).text_floor is floor

    def test_only_greedy_texts_that_were_kept(self) -> None:
        hot = done(temperature=0.8, text="a"), done(temperature=0.8, text="b")
        gone = done(text=None), done(text="b")
        assert compare_texts([hot, gone]) is None
        assert compare_texts([]) is None

    def test_arms_that_were_asked_differently_are_not_compared(self) -> None:
        assert evidence(arm(2), arm(1)).texts is not None
        assert evidence(arm(2), arm(1), same_texts=False).texts is None


def test_acceptance_is_the_candidates() -> None:
    one = arm(200, acceptance=accepted(2, 8, 1))
    found = evidence(one, arm(100, acceptance=accepted(2, 8, 6))).acceptance
    assert found is not None
    assert (found.rate, found.p10, found.p90) == (0.75, 0.75, 0.75)


def test_how_many_more_would_do() -> None:
    """Blocks that swing between 0.8 and 1.3: unclear, and cleared up by more of them."""
    swinging = [
        replace(each, last_ns=each.scheduled_ns + (80_000_000, 130_000_000)[each.block % 2])
        for each in arm(100, blocks=6)
    ]
    steady = [replace(each, last_ns=each.scheduled_ns + 115_000_000) for each in arm(100)]
    found = evidence(steady, swinging)
    assert found.more_requests is not None
    assert found.more_requests > 24
    assert evidence(arm(200), arm(100)).more_requests is None, "it is clear"


def test_nothing_at_all() -> None:
    found = evidence([], [])
    assert (found.e2e, found.p99, found.throughput, found.acceptance) == (None,) * 4
    assert (found.error_rate, found.temperatures) == (0.0, ())


def test_acceptance_by_the_servers_counters_where_answers_do_not_tell() -> None:
    counted = accepted(100, 400, 80)
    found = evidence(arm(200), arm(100), counted=counted, load="concurrency 2")
    assert found.acceptance is not None
    assert (found.acceptance.rate, found.acceptance.num_requests) == (0.2, 0)
    # 24 texts of 11 tokens: 240 after the first, of which 80 were accepted in 160 steps.
    assert found.costs is not None
    assert found.costs.steps == pytest.approx((240 / 2 - 60) / 100)
    assert found.load == "concurrency 2"
    assert found.costs is not None
    assert found.costs.break_even_rate == 0.0


def leading(block: int, num: int = 2) -> list[Record]:
    """Requests before those that count; the first ends after 50 ms, the last after 100."""
    return [
        done(place - num, e2e=50 * (place + 1), ttft=1, at=1000 * block, block=block,
             is_warmup=True, completion_tokens=5 * (place + 1))
        for place in range(num)
    ]  # fmt: skip


def test_counters_are_over_all_that_was_written() -> None:
    """As before, and as much again in answers that do not count."""
    counted = accepted(200, 800, 160)
    led = [each for block in range(6) for each in leading(block)]
    arms = [[*led, *arm(200)], [*led, *arm(100)]]
    known = evidence(*arms, counted=counted, written=Written(2 * 264, 48))
    assert known.costs is not None
    assert known.costs.steps == pytest.approx((240 / 2 - 60) / 100)
    assert evidence(*arms, counted=counted).costs is None, "nobody knows what else was written"


def test_throughput_is_that_of_the_plateau() -> None:
    """Both take 100 ms for an answer of 10 tokens, two at a time; the last of the candidate's hangs
    for a second, after the plateau."""
    one = [
        record
        for block in range(6)
        for record in (
            *leading(block),
            *(done(n, at=1000 * block + 50 * (n + 1), e2e=100, ttft=10, block=block,
                   completion_tokens=10) for n in range(8)),
        )
    ]  # fmt: skip
    other = [
        replace(each, last_ns=(each.last_ns or 0) + 10**9) if each.index == 7 else each
        for each in one
    ]
    for found in (evidence(one, other).throughput, ratio_of("throughput", one, other, level=0.95)):
        assert found is not None
        assert found.estimate == pytest.approx(1)
    without = [[each for each in arm if not each.is_warmup] for arm in (one, other)]
    slow = evidence(*without).throughput
    assert slow is not None
    assert slow.estimate == pytest.approx(450 / 1450)
    half = evidence(one, without[1]).throughput
    assert half == slow, "both arms by the same rule"

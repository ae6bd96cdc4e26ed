from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.loadgen.endpoint import make_requests
from outdraft.measure.plateau import (
    counted_ns,
    find_plateau,
    is_lead,
    num_spare,
    surround,
    surround_in_time,
    tokens_between,
    tokens_per_s,
)
from outdraft.records import Record
from outdraft.workload.plan import plan_requests
from outdraft.workload.sets import built_in

from .made import done, failed

PLAN = plan_requests(built_in(), mix=((0.0, 1.0),), seed=0, max_tokens=32)
MS = 1_000_000

_times = st.integers(0, 10_000)
_answers = st.builds(
    lambda due, wait, write, tokens: done(
        at=due, ttft=wait, e2e=wait + write, completion_tokens=tokens
    ),
    _times,
    _times,
    _times,
    st.integers(1, 300),
)


class TestSurround:
    @pytest.mark.parametrize("concurrency", [2, 3, 16, 64])
    def test_leads_end_one_after_the_other_and_nothing_collides(self, concurrency: int) -> None:
        counted = make_requests(PLAN[:40], arm="on", block=3)
        spare = PLAN[40 : 40 + num_spare(concurrency)]
        requests = surround(counted, spare, concurrency)
        lead, after = requests[:concurrency], requests[concurrency + 40 :]
        assert requests[concurrency : concurrency + 40] == counted
        assert len(after) == 4 * concurrency
        lengths = [each.planned.max_tokens for each in lead]
        assert lengths == sorted(lengths)
        assert (min(lengths), max(lengths)) == (-(-32 // concurrency), 32)
        assert all(each.is_warmup and not each.is_filler for each in lead)
        assert all(each.is_filler for each in after)
        assert {(each.arm, each.block) for each in requests} == {("on", 3)}
        assert len({each.index for each in requests}) == len(requests)
        assert all(each.index < 0 for each in lead)

    @pytest.mark.parametrize("concurrency", [1, None])
    def test_one_at_a_time_needs_none(self, concurrency: int | None) -> None:
        counted = make_requests(PLAN[:4])
        assert num_spare(concurrency) == 0
        assert surround(counted, (), concurrency) == counted

    @given(st.integers(2, 30), st.floats(0.01, 50), st.integers(0, 40), st.floats(0, 100))
    def test_by_the_clock_the_pace_is_the_same_throughout(
        self, num: int, rate: float, num_more: int, lead_s: float
    ) -> None:
        gap = 1e9 / rate
        plan = [replace(PLAN[n], offset_ns=round((n + 5) * gap)) for n in range(num)]
        counted = make_requests(plan, block=2)
        requests = surround_in_time(counted, PLAN[100 : 100 + num_more], round(lead_s * 1e9))
        times = [each.planned.offset_ns or 0 for each in requests]
        assert times == pytest.approx([n * gap for n in range(len(times))], rel=1e-6, abs=10)
        lead = [each for each in requests if each.is_warmup]
        assert len(lead) == min(num_more // 2, round(lead_s * 1e9 / gap))
        assert sum(each.is_filler for each in requests) == num_more - num_more // 2
        assert [each.index for each in requests if not each.is_filler] == [*range(-len(lead), num)]
        assert len({each.index for each in requests}) == len(requests)


class TestWindow:
    @given(st.lists(_answers, max_size=8), st.lists(_times, min_size=3, max_size=3).map(sorted))
    def test_parts_of_a_time_add_up(self, records: list[Record], at: list[int]) -> None:
        start, middle, end = (each * MS for each in at)
        parts = tokens_between(records, start, middle) + tokens_between(records, middle, end)
        assert parts == pytest.approx(tokens_between(records, start, end))

    @given(st.lists(_answers, max_size=8))
    def test_over_the_whole_time_it_is_every_token(self, records: list[Record]) -> None:
        tokens = sum(each.completion_tokens or 0 for each in records)
        assert tokens_between(records, 0, 10**14) == pytest.approx(tokens)
        assert tokens_between(records, -(10**14), 0) == 0

    @given(st.lists(_answers, max_size=8), _times, st.integers(-5_000, 5_000))
    def test_only_differences_of_times_count(
        self, records: list[Record], start: int, shift: int
    ) -> None:
        moved = [
            replace(
                each,
                scheduled_ns=each.scheduled_ns + shift * MS,
                first_ns=(each.first_ns or 0) + shift * MS,
                last_ns=(each.last_ns or 0) + shift * MS,
            )
            for each in records
        ]
        before = tokens_between(records, start * MS, (start + 700) * MS)
        after = tokens_between(moved, (start + shift) * MS, (start + shift + 700) * MS)
        assert after == pytest.approx(before)

    @given(
        concurrency=st.integers(2, 24),
        waves=st.integers(2, 5),
        step=st.integers(1, 50),
        tokens=st.integers(4, 200),
    )
    def test_a_steady_server_has_the_throughput_that_it_has(
        self, concurrency: int, waves: int, step: int, tokens: int
    ) -> None:
        """A token every `step` ms in each slot: however the answers lie in the window."""
        tokens = max(tokens, concurrency)
        plan = [replace(each, max_tokens=tokens) for each in PLAN[: 6 * concurrency]]
        counted, spare = make_requests(plan[: waves * concurrency]), plan[-concurrency:]
        free_at, records = [0] * concurrency, []
        for request in surround(counted, spare, concurrency):
            due, num = min(free_at), request.planned.max_tokens
            free_at[free_at.index(due)] += num * step
            records.append(
                replace(
                    done(request.index, at=due, ttft=step, e2e=num * step, completion_tokens=num),
                    is_warmup=request.is_warmup,
                )
            )
        truth = concurrency / step * 1000
        rounding = concurrency / max((waves - 1) * tokens, 1)  # what a window cuts off
        assert tokens_per_s(records) == pytest.approx(truth, rel=0.02 + 2 * rounding)
        requests_per_s = len(counted) / counted_ns(records) * 1e9
        assert requests_per_s == pytest.approx(truth / tokens, rel=0.02 + 1 / (waves - 1))


class TestPlateau:
    """Two at a time; leads end after 50 and 100 ms, counted ones take 100 ms each."""

    lead = (
        done(-2, e2e=50, ttft=10, is_warmup=True, completion_tokens=5),
        done(-1, e2e=100, ttft=10, is_warmup=True, completion_tokens=10),
    )
    counted = tuple(
        done(n, at=50 * (n + 1), e2e=100, ttft=10, completion_tokens=10) for n in range(4)
    )

    def test_by_hand(self) -> None:
        found = find_plateau([*self.lead, *self.counted])
        assert found is not None
        assert (found.start_ns, found.end_ns) == (50 * MS, 200 * MS)
        assert found.num_ended == 3  # at 100, 150 and 200 ms
        assert found.seconds == 0.15
        assert counted_ns([*self.lead, *self.counted]) == 200 * MS, "4 requests, one in 50 ms"

    def test_it_begins_when_all_leads_have_begun_to_write(self) -> None:
        late = replace(self.lead[1], first_ns=80 * MS)
        found = find_plateau([self.lead[0], late, *self.counted])
        assert found is not None
        assert found.start_ns == 80 * MS

    def test_a_failed_request_ends_nothing(self) -> None:
        lost = replace(self.counted[0], error="cut")
        found = find_plateau([*self.lead, lost, *self.counted[1:]])
        assert found is not None
        assert found.num_ended == 2

    def test_without_leads_everything_counts_from_the_first_to_the_end(self) -> None:
        warm = [replace(each, block=-1) for each in self.lead]
        assert not any(map(is_lead, warm))
        for records in (self.counted, [*warm, *self.counted]):
            assert find_plateau(records) is None
            assert counted_ns(records) == 250 * MS
            assert tokens_per_s(records) == pytest.approx(40 / 0.25)

    def test_nothing_to_go_by(self) -> None:
        for records in ([], self.lead, [*self.lead, failed(0)], [failed(0)]):
            assert find_plateau(records) is None
            assert (counted_ns(records), tokens_per_s(records)) == (0, 0.0)

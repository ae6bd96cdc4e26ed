"""Against numbers worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.acceptance import Acceptance
from outdraft.errors import OptionError
from outdraft.measure.summary import FEWEST_FOR_TAIL, parse_slo, quantiles, summarize

from .made import accepted, done, failed


def test_times_of_a_handful() -> None:
    """e2e 100 to 500 ms, first tokens at a tenth, ten tokens after it: 9 to 45 ms each."""
    summary = summarize([done(i, e2e=100 * (i + 1)) for i in range(5)])
    assert [q.value for q in summary.e2e] == pytest.approx([300, 480, 496])
    assert [q.value for q in summary.ttft] == pytest.approx([30, 48, 49.6])
    assert [q.value for q in summary.tpot] == pytest.approx([27, 43.2, 44.64])
    assert [q.q for q in summary.e2e] == [0.5, 0.95, 0.99]
    assert all(q.low is None for q in summary.e2e), "five values bracket no percentile"


def test_an_interval_where_there_are_enough() -> None:
    summary = summarize([done(i, e2e=i + 1) for i in range(100)])
    p50, p95, p99 = summary.e2e
    assert (p50.low, p50.high) == (40, 61)  # the binomial ranks for 100 values
    assert p95.low is not None
    assert p95.low < p95.value < (p95.high or 0)
    assert (p99.low, p99.high) == (None, None)


def test_a_p99_is_known_from_so_many_requests_on() -> None:
    many, few = (quantiles([1.0] * (FEWEST_FOR_TAIL - less)) for less in (0, 1))
    assert [each.is_known for each in many] == [True, True, True]
    assert [each.is_known for each in few] == [True, True, False]


def test_throughput_is_over_the_whole_time() -> None:
    """Due at 0, 1000 and 2000 ms, the last done at 2500: 3 requests and 33 tokens in 2.5 s."""
    summary = summarize([done(i, e2e=500, at=1000 * i) for i in range(3)])
    assert summary.duration_s == 2.5
    assert summary.requests_per_s == pytest.approx(1.2)
    assert summary.tokens_per_s == pytest.approx(13.2)
    assert summary.mean_output_tokens == 11
    assert summary.goodput_per_s is None
    assert summary.acceptance is None


def test_warm_up_is_left_out() -> None:
    measured = [done(i, e2e=200, at=10_000) for i in range(3)]
    warm = [done(9, e2e=9_000, is_warmup=True, block=-1), failed(10, is_warmup=True, block=-1)]
    assert summarize([*warm, *measured]) == summarize(measured)


def test_leads_are_said_and_only_throughput_looks_at_them() -> None:
    """Two at a time: of six answers of 100 ms, the first is sent when the first lead has ended. On
    the plateau, from 50 to 300 ms, both write a token each 10 ms."""
    lead = [done(n - 2, e2e=50 * (n + 1), ttft=10, is_warmup=True, completion_tokens=5 * (n + 1))
            for n in range(2)]  # fmt: skip
    counted = [done(n, at=50 * (n + 1), e2e=100, ttft=10, completion_tokens=10) for n in range(6)]
    alone, both = summarize(counted, {"ttft": 99}), summarize([*lead, *counted], {"ttft": 99})
    assert (alone.num_lead, alone.plateau_s) == (0, None)
    assert (both.num_lead, both.plateau_s) == (2, 0.25)
    assert (both.num_requests, both.duration_s, both.e2e) == (6, 0.35, alone.e2e)
    assert alone.tokens_per_s == pytest.approx(60 / 0.35)
    assert both.tokens_per_s == pytest.approx(200, rel=0.06)
    assert both.requests_per_s == both.goodput_per_s == pytest.approx(20)


def test_failures_are_counted_and_nowhere_else() -> None:
    good = [done(0, e2e=100), done(1, e2e=100)]
    half = done(2, e2e=5_000, error="stream ended early")
    summary = summarize([*good, half, failed(3)])
    assert (summary.num_requests, summary.num_errors) == (4, 2)
    assert summary.duration_s == 0.1
    assert summary.requests_per_s == pytest.approx(20)
    assert summary.e2e == summarize(good).e2e


@pytest.mark.parametrize("records", [[], [failed(0), failed(1)]])
def test_nothing_that_succeeded(records: list[object]) -> None:
    summary = summarize(records, {"ttft": 100})  # type: ignore[arg-type]
    assert (summary.num_requests, summary.num_errors) == (len(records), len(records))
    assert (summary.e2e, summary.tokens_per_s, summary.goodput_per_s) == ((), 0.0, None)
    assert summary.mean_output_tokens is None


class TestGoodput:
    def test_all_limits_must_hold(self) -> None:
        records = [
            done(0, e2e=1000, ttft=100),  # 90 ms a token
            done(1, e2e=1000, ttft=300),  # 70
            done(2, e2e=400, ttft=100),  # 30
            done(3, e2e=1000, ttft=100, completion_tokens=1),  # has no time per token
            failed(4),
        ]
        assert summarize(records, {"ttft": 100}).goodput_per_s == 3
        assert summarize(records, {"ttft": 100, "tpot": 50}).goodput_per_s == 2
        assert summarize(records, {"ttft": 300, "tpot": 70, "e2e": 999}).goodput_per_s == 1
        assert summarize(records, {"ttft": 1}).goodput_per_s == 0

    @pytest.mark.parametrize(
        ("text", "slo"),
        [
            ("ttft=200,tpot=50", {"ttft": 200, "tpot": 50}),
            ("e2e=2s", {"e2e": 2000}),
            (" ttft=1.5ms , e2e=0.5s ", {"ttft": 1.5, "e2e": 500}),
            ("e2e=5m", {"e2e": 300_000}),
        ],
    )
    def test_limits_are_read(self, text: str, slo: dict[str, float]) -> None:
        assert parse_slo(text) == slo

    @pytest.mark.parametrize(
        "text",
        ["", "ttft", "ttft=", "ttft=fast", "latency=3", "ttft=0", "ttft=-5", "e2e=inf", "e2e=nan",
         "ttft=200,", "ttft=5d", "TTFT=5"],
    )  # fmt: skip
    def test_what_is_no_limit(self, text: str) -> None:
        with pytest.raises(OptionError, match=r"--slo .* write e\.g\. ttft=200,tpot=50") as error:
            parse_slo(text)
        assert "\n" not in str(error.value)

    @given(st.text(max_size=20))
    def test_any_text_is_limits_or_one_line(self, text: str) -> None:
        try:
            slo = parse_slo(text)
        except OptionError:
            return
        assert slo
        assert all(0 < value < float("inf") for value in slo.values())


class TestAcceptance:
    def test_by_hand(self) -> None:
        """4 of 8 tokens of the cold code, 1 of 4 of the hot chat."""
        summary = summarize(
            [
                done(0, category="code", acceptance=accepted(4, 8, 4, (3, 4), (1, 4))),
                done(1, temperature=0.9, acceptance=accepted(2, 4, 1, (1, 2), (0, 2))),
                done(2, acceptance=None),
                failed(3),
            ]
        )
        found = summary.acceptance
        assert found is not None
        assert found.rate == pytest.approx(5 / 12)
        assert found.length == pytest.approx(1 + 5 / 6)
        assert found.num_requests == 2
        assert (found.p10, found.p50, found.p90) == pytest.approx((0.275, 0.375, 0.475))
        assert found.per_position == pytest.approx((4 / 6, 1 / 6))
        assert found.by_category == {"chat": 0.25, "code": 0.5}
        assert found.by_temperature == {"0": 0.5, "0.7-1": 0.25}

    def test_the_rate_is_of_tokens_not_of_requests(self) -> None:
        long = done(0, acceptance=accepted(90, 90, 90))
        short = done(1, acceptance=accepted(10, 10, 0))
        found = summarize([long, short]).acceptance
        assert found is not None
        assert (found.rate, found.p50) == (0.9, 0.5)

    def test_draft_lengths_that_differ(self) -> None:
        """A third place that only one request had is judged by that one alone."""
        found = summarize(
            [
                done(0, acceptance=accepted(2, 6, 6, (2, 2), (2, 2), (2, 2))),
                done(1, acceptance=accepted(8, 16, 8, (6, 8), (2, 8))),
            ]
        ).acceptance
        assert found is not None
        assert found.per_position == pytest.approx((0.8, 0.4, 1.0))

    def test_a_server_that_does_not_say_which_places_were_drafted(self) -> None:
        counts = Acceptance(10, 20, 12, accepted_per_position=[8, 4])
        found = summarize([done(0, acceptance=counts)]).acceptance
        assert found is not None
        assert found.per_position == (0.8, 0.4)

    def test_answers_without_a_draft_are_steps_without_one(self) -> None:
        some = done(0, acceptance=accepted(4, 8, 4), completion_tokens=25)
        none = done(1, acceptance=accepted(0, 0, 0), completion_tokens=21)
        found = summarize([some, none]).acceptance
        assert found is not None
        assert found.share_drafted == 0.1  # of 20 steps and of 20
        silent = summarize([done(0, acceptance=None)], None, {
            "vllm:spec_decode_num_drafts_total": 10.0,
            "vllm:spec_decode_num_draft_tokens_total": 40.0,
            "vllm:spec_decode_num_accepted_tokens_total": 20.0,
            "vllm:generation_tokens_total": 74.0,
            "vllm:time_to_first_token_seconds_count": 4.0,
        }).acceptance  # fmt: skip
        assert silent is not None
        assert silent.share_drafted == 0.2  # of 50 steps

    def test_nothing_proposed_is_no_acceptance(self) -> None:
        assert summarize([done(0, acceptance=accepted(0, 0, 0))]).acceptance is None

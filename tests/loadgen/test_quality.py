from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import LoadRun
from outdraft.loadgen.quality import assess_arms, assess_client, assess_load
from outdraft.records import Record

MS = 1_000_000
CALM = Pulse(duration_ns=10_000 * MS, worst_late_ns=2 * MS, cpu_ns=500 * MS)


def answered(index: int, *, lag_ms: float = 0.1, ttft_ms: float = 50, **more: object) -> Record:
    due = index * 10 * MS
    sent = due + round(lag_ms * MS)
    first = sent + round(ttft_ms * MS)
    last = first + 100 * MS
    times = {"scheduled_ns": due, "sent_ns": sent, "first_ns": first, "last_ns": last}
    return Record(f"p{index}", "chat", 0.0, "off", 0, index, **times, **more)  # type: ignore[arg-type]


def failed(index: int, error: str) -> Record:
    return Record(f"p{index}", "chat", 0.0, "off", 0, index, scheduled_ns=0, sent_ns=1, error=error)


def run(records: Sequence[Record], **more: object) -> LoadRun:
    values = {"num_planned": len(records), "pulses": (CALM,), **more}
    return LoadRun(tuple(records), **values)  # type: ignore[arg-type]


def test_a_good_run() -> None:
    quality = assess_load(run([answered(index) for index in range(100)]))
    assert quality.is_valid
    assert quality.problems == ()
    assert (quality.lag_p50_ns, quality.lag_p99_ns) == (100_000, 100_000)
    assert (quality.num_requests, quality.num_errors) == (100, 0)
    assert quality.cpu_share == 0.05


def test_a_few_errors_are_stated() -> None:
    records = [answered(index) for index in range(97)]
    records += [failed(97, "http 503: busy"), failed(98, "http 503: later"), failed(99, "refused")]
    quality = assess_load(run(records))
    assert quality.is_valid
    assert quality.problems == ("3 of 100 requests failed (3.0%): http 503 × 2, refused × 1",)
    assert (quality.num_requests, quality.num_errors) == (100, 3)


def test_many_errors_are_too_many() -> None:
    records = [answered(index) for index in range(9)] + [failed(9, "timeout in total")]
    quality = assess_load(run(records))
    assert not quality.is_valid
    assert quality.problems == (
        "1 of 10 requests failed (10.0%): timeout in total × 1; at most 5% may",
    )


def test_a_dead_server() -> None:
    quality = assess_load(run([failed(index, "refused") for index in range(50)]))
    assert not quality.is_valid
    assert "50 of 50 requests failed (100.0%): refused × 50" in quality.problems[0]


def test_a_late_client() -> None:
    records = [answered(index, lag_ms=8 if index < 2 else 0.1) for index in range(100)]
    quality = assess_load(run(records))
    assert not quality.is_valid
    assert quality.problems == (
        "the client was the bottleneck: one request in a hundred was sent 8.0 ms late or more "
        "(the median time to the first token is 50.1 ms); it had only 5% of a core: give it a "
        "machine with less to do",
    )
    busy = Pulse(duration_ns=1000 * MS, cpu_ns=970 * MS)
    [problem] = assess_load(run(records, pulses=(CALM, busy))).problems
    assert problem.endswith("it used 97% of a core: use more client processes, or send less")


def test_lag_that_does_not_matter_beside_a_slow_server() -> None:
    records = [answered(index, lag_ms=8, ttft_ms=900) for index in range(100)]
    assert assess_load(run(records)).is_valid


def test_a_client_that_does_not_listen() -> None:
    deaf = Pulse(duration_ns=10_000 * MS, worst_late_ns=40 * MS, stalled_ns=500 * MS, num_stalls=20)
    records = [answered(index) for index in range(100)]
    quality = assess_load(run(records, pulses=(CALM, deaf)))
    assert not quality.is_valid
    [problem] = quality.problems
    assert "event loop was blocked for 5.0% of the time, up to 40.0 ms at once" in problem
    assert quality.stalled_share == 0.05
    slow = [answered(index, ttft_ms=5000) for index in range(100)]
    assert assess_load(run(slow, pulses=(deaf,))).is_valid


def test_clocks() -> None:
    records = [answered(index) for index in range(10)]
    stepped = assess_load(run(records, pulses=(Pulse(1000, wall_step_ns=-2500 * MS), CALM)))
    assert stepped.is_valid
    assert stepped.problems == (
        "the wall clock was set by -2.500 s; no measured time depends on it",
    )
    slept = assess_load(run(records, pulses=(Pulse(1000, asleep_ns=90_000 * MS),)))
    assert not slept.is_valid
    assert slept.problems == ("the machine was suspended for 90.0 s during the run",)


def test_a_stopped_run_and_an_empty_one() -> None:
    stopped = assess_load(run([answered(0)], num_planned=40))
    assert not stopped.is_valid
    assert stopped.problems == ("stopped after 1 of 40 requests",)
    empty = assess_load(run([], pulses=()))
    assert (empty.is_valid, empty.problems) == (False, ("no request was sent",))
    assert (empty.lag_p50_ns, empty.num_errors) == (None, 0)


def test_warm_up_is_left_out() -> None:
    warm = [answered(index, lag_ms=500, is_warmup=True) for index in range(10)]
    assert assess_load(run([*warm, *(answered(index) for index in range(10, 20))])).is_valid
    assert not assess_load(run(warm)).is_valid  # nothing else is there to judge


@pytest.mark.parametrize(
    ("refused", "missed"),
    [
        (("return_spec_tokens_details",), []),  # by our own server, which has another name for it
        (("include_metrics",), []),
        (
            ("include_metrics", "return_spec_tokens_details"),
            ["include_metrics", "return_spec_tokens_details"],
        ),
        (("ignore_eos", "return_spec_tokens_details"), ["ignore_eos"]),
    ],
)
def test_a_field_that_the_server_has_under_another_name_is_not_missed(
    refused: tuple[str, ...], missed: list[str]
) -> None:
    problems = assess_load(run([answered(0)], refused_fields=refused)).problems
    words = f"the server refused {', '.join(missed)}: requests were sent without"
    assert problems == ((words,) if missed else ())


def test_what_the_client_noticed_is_told() -> None:
    quality = assess_load(
        run([answered(0)], refused_fields=("ignore_eos",), problems=("client process 1 died",))
    )
    assert quality.is_valid
    assert quality.problems == (
        "client process 1 died",
        "the server refused ignore_eos: requests were sent without",
    )


def test_errors_are_counted_by_their_kind() -> None:
    errors = ["http 503: later: much", "http 503", "refused"]
    [problem] = assess_load(run([failed(i, error) for i, error in enumerate(errors)])).problems
    assert ": http 503 × 2, refused × 1;" in problem


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=300))
def test_lags_are_measured_values(values: list[int]) -> None:
    quality = assess_load(run([answered(i, lag_ms=each / 1e6) for i, each in enumerate(values)]))
    for found, share in ((quality.lag_p50_ns, 0.50), (quality.lag_p99_ns, 0.99)):
        assert found is not None
        assert sum(each <= found for each in values) >= share * len(values) - 1e-9
        assert sum(each < found for each in values) < share * len(values)


def test_a_block_is_judged_by_what_succeeded() -> None:
    records = [*(answered(index) for index in range(11)), failed(11, "refused")]
    quality = assess_client(run(records))
    assert quality is not None
    assert (quality.is_valid, quality.problems) == (True, ())
    assert assess_client(run([failed(0, "refused")])) is None
    late = assess_client(run([answered(index, lag_ms=90) for index in range(12)]))
    assert late is not None
    assert not late.is_valid


def sent(num: int, num_failed: int, *, is_warmup: bool = False) -> list[Record]:
    return [
        Record("p", "chat", 0.0, "arm", 0, at, 0, sent_ns=0, first_ns=1, last_ns=2,
               error="http 503: later" if at < num_failed else None, is_warmup=is_warmup)
        for at in range(num)
    ]  # fmt: skip


def test_one_arm_with_too_many_is_enough() -> None:
    problems, few = assess_arms({"off": sent(40, 0), "ngram k=2": sent(40, 3)})
    assert not few
    assert problems == ["ngram k=2: 3 of 40 requests failed (7.5%): http 503 × 3; at most 5% may"]


def test_a_few_are_told_and_warm_up_does_not_count() -> None:
    records = [*sent(40, 2), *sent(4, 4, is_warmup=True)]
    problems, few = assess_arms({"off": records})
    assert few
    assert problems == ["off: 2 of 40 requests failed (5.0%): http 503 × 2"]


def test_a_client_that_was_late_over_all_blocks() -> None:
    records = [answered(index, lag_ms=8 if index < 3 else 0.1) for index in range(200)]
    problems, is_valid = assess_arms({"off": records})
    assert not is_valid
    assert problems == [
        "off: the client was the bottleneck: one request in a hundred was sent 8.0 ms late or "
        "more (the median time to the first token is 50.1 ms)"
    ]
    assert assess_arms({"off": []}) == (["off: no request was sent"], False)

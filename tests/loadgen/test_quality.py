from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.loadgen.heartbeat import Pulse
from outdraft.loadgen.load import Run
from outdraft.loadgen.quality import judge, kind_of, percentile
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


def run(records: Sequence[Record], **more: object) -> Run:
    values = {"num_planned": len(records), "pulses": (CALM,), **more}
    return Run(tuple(records), started_at="", start_ns=0, **values)  # type: ignore[arg-type]


def test_a_good_run() -> None:
    quality = judge(run([answered(index) for index in range(100)]))
    assert quality.is_valid
    assert quality.problems == ()
    assert (quality.lag_p50_ns, quality.lag_p99_ns) == (100_000, 100_000)
    assert (quality.num_requests, quality.num_errors, quality.error_share) == (100, 0, 0.0)
    assert quality.cpu_share == 0.05


def test_a_few_errors_are_stated() -> None:
    records = [answered(index) for index in range(97)]
    records += [failed(97, "http 503: busy"), failed(98, "http 503: later"), failed(99, "refused")]
    quality = judge(run(records))
    assert quality.is_valid
    assert quality.problems == ("3 of 100 requests failed (3.0%): http 503 × 2, refused × 1",)
    assert quality.error_share == 0.03


def test_many_errors_are_too_many() -> None:
    records = [answered(index) for index in range(9)] + [failed(9, "timeout in total")]
    quality = judge(run(records))
    assert not quality.is_valid
    assert quality.problems == (
        "1 of 10 requests failed (10.0%): timeout in total × 1; at most 5% may",
    )


def test_a_dead_server() -> None:
    quality = judge(run([failed(index, "refused") for index in range(50)]))
    assert not quality.is_valid
    assert "50 of 50 requests failed (100.0%): refused × 50" in quality.problems[0]


def test_a_late_client() -> None:
    records = [answered(index, lag_ms=8 if index < 2 else 0.1) for index in range(100)]
    quality = judge(run(records))
    assert not quality.is_valid
    assert quality.problems == (
        "the client was the bottleneck: one request in a hundred was sent 8.0 ms late or more "
        "(the median time to the first token is 50.1 ms); it had only 5% of a core: give it a "
        "machine with less to do",
    )
    busy = Pulse(duration_ns=1000 * MS, cpu_ns=970 * MS)
    [problem] = judge(run(records, pulses=(CALM, busy))).problems
    assert problem.endswith("it used 97% of a core: use more client processes, or send less")


def test_lag_that_does_not_matter_beside_a_slow_server() -> None:
    records = [answered(index, lag_ms=8, ttft_ms=900) for index in range(100)]
    assert judge(run(records)).is_valid


def test_a_client_that_does_not_listen() -> None:
    deaf = Pulse(duration_ns=10_000 * MS, worst_late_ns=40 * MS, stalled_ns=500 * MS, num_stalls=20)
    records = [answered(index) for index in range(100)]
    quality = judge(run(records, pulses=(CALM, deaf)))
    assert not quality.is_valid
    [problem] = quality.problems
    assert "did not listen for 5.0% of the time, up to 40.0 ms in one piece" in problem
    assert quality.stalled_share == 0.05
    slow = [answered(index, ttft_ms=5000) for index in range(100)]
    assert judge(run(slow, pulses=(deaf,))).is_valid


def test_clocks() -> None:
    records = [answered(index) for index in range(10)]
    stepped = judge(run(records, pulses=(Pulse(1000, wall_step_ns=-2500 * MS), CALM)))
    assert stepped.is_valid
    assert stepped.problems == (
        "the wall clock was set by -2.500 s; no measured time depends on it",
    )
    slept = judge(run(records, pulses=(Pulse(1000, asleep_ns=90_000 * MS),)))
    assert not slept.is_valid
    assert slept.problems == ("the machine was suspended for 90.0 s during the run",)


def test_a_stopped_run_and_an_empty_one() -> None:
    stopped = judge(run([answered(0)], num_planned=40))
    assert not stopped.is_valid
    assert stopped.problems == ("stopped after 1 of 40 requests",)
    empty = judge(run([], pulses=()))
    assert (empty.is_valid, empty.problems) == (False, ("no request was sent",))
    assert (empty.lag_p50_ns, empty.error_share) == (None, 0.0)


def test_warm_up_is_left_out() -> None:
    warm = [answered(index, lag_ms=500, is_warmup=True) for index in range(10)]
    assert judge(run([*warm, *(answered(index) for index in range(10, 20))])).is_valid
    assert not judge(run(warm)).is_valid  # nothing else is there to judge


def test_what_the_client_noticed_is_told() -> None:
    quality = judge(
        run([answered(0)], refused_fields=("ignore_eos",), problems=("client process 1 died",))
    )
    assert quality.is_valid
    assert quality.problems == (
        "client process 1 died",
        "the server refused ignore_eos: sent without",
    )


def test_kinds() -> None:
    assert kind_of("http 503: later: much") == "http 503"
    assert kind_of("refused") == "refused"


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(), min_size=1, max_size=300), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_percentile(values: list[int], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found is not None
    assert sum(each <= found for each in values) >= share * len(values) - 1e-9
    assert sum(each < found for each in values) < share * len(values)
    assert percentile([], share) is None

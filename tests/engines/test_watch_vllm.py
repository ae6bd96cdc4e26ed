"""A watch of real vLLM says what bench measured in the same seconds: acceptance and rates exactly,
percentiles within a bucket."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

from outdraft.backends.backend import Serving
from outdraft.backends.lookup import backend_named
from outdraft.backends.process import start
from outdraft.observe.histogram import Histogram
from outdraft.observe.reading import read_page
from outdraft.speculation import Speculation
from outdraft.stats.percentiles import percentile
from outdraft.testing.backend_contract import REPEATING, chat, page_of
from tests.engines.places import smollm2_folder, vllm
from tests.engines.watched import Both, check_acceptance, check_rates, watch_and_bench

pytestmark = pytest.mark.engines

LIMIT_S = 300.0
SHORTEST = 4  # of the texts that have a time per token
LENGTHS = (1, SHORTEST, 6, 9, 12, 16, 24, 32) * 5
QUANTILES = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
MOST_LATE_S = 0.05  # that an answer is at the client after it was at the server, on average
LEAST_LATE_S = 0.01  # that one of them may be


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTDRAFT_VLLM", str(vllm()))
        yield


def test_a_watch_and_bench_agree(tmp_path: Path) -> None:
    serving = Serving(
        target=str(smollm2_folder(6)),
        served_name="smollm2",
        dtype="float32",
        max_model_len=1024,
        max_num_seqs=4,
        threads=1,  # the other core is for the server's own process, the client and the watch
        extra=("--enforce-eager",),  # compiled, it starts three times as slowly
    )
    speculation, log = Speculation("ngram", k=5), tmp_path / "engine.txt"
    with start(backend_named("vllm"), serving, speculation, log=log, limit_s=LIMIT_S) as engine:
        chat(engine, REPEATING, max_tokens=16)  # the first answer takes seconds
        both = watch_and_bench(engine.url, tmp_path, LENGTHS, apart_s=1.0)
        page = page_of(engine)
    check_acceptance(both)
    check_rates(both)
    check_requests(both)
    check_steps(both)
    for name, histogram in read_page(page, 0.0).times.items():
        check_times(both, name, histogram)


def check_requests(both: Both) -> None:
    window, num_requests = both.window, len(both.records)
    passed_s = window["end"] - window["start"]
    assert window["num_requests"] == num_requests
    assert window["requests_per_s"] == pytest.approx(num_requests / passed_s)


def check_steps(both: Both) -> None:
    """A step gives one chunk of text, or less where a slow client gets two of them as one."""
    after_first = both.num_tokens - len(both.records)
    num_chunks = sum(len(each.chunk_ns) - 1 for each in both.records)
    print(f"tokens per round: watch {both.window['tokens_per_round']:.3f}, "
          f"bench {after_first / num_chunks:.3f}")  # fmt: skip
    assert 0.95 <= both.window["tokens_per_round"] / (after_first / num_chunks) <= 1 + 1e-9
    per_token = both.decode_s / after_first
    assert both.window["seconds_per_token"] == pytest.approx(per_token, rel=0.15)


def check_times(both: Both, name: str, histogram: Histogram) -> None:
    """Each request takes a little longer for its client than for the server, which sees neither
    the way nor a client that is late. So the request at the same place in the order of all is in
    the bucket of the watch's percentile, or above it by no more than requests are late. Times per
    token may be off in both directions, by less: both ends are late.

    The request at that place, because bench interpolates between two of them.
    """
    seen, times = both.window["times"][name], both.seconds(name)
    assert seen["count"] == len(times)
    late_s = mean(times) - seen["mean"]
    is_share = name == "tpot"
    ends = SHORTEST - 1 if is_share else 1
    assert (-MOST_LATE_S / ends if is_share else 0) < late_s < MOST_LATE_S / ends
    allowed_s = max(4 * abs(late_s), LEAST_LATE_S / ends)
    buckets = []
    for percent, q in QUANTILES.items():
        at = bisect_left(histogram.bounds, seen[percent])
        low, high = (histogram.bounds[at - 1] if at else 0.0), histogram.bounds[at]
        measured = percentile(times, q, method="inverted_cdf")
        buckets.append((low, high))
        print(f"{name} {percent}: watch {seen[percent]:.4f} in ({low:g}, {high:g}], "
              f"bench {measured:.4f}, mean {late_s:.4f} later")  # fmt: skip
        assert low - (allowed_s if is_share else 0) < measured <= high + allowed_s
    if not is_share:  # on a quiet machine all texts have about the same time per token
        assert len(set(buckets)) > 1, "times that differ"

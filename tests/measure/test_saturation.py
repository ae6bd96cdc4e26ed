"""Planted curves: where throughput stops growing is known."""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Callable, Sequence

import pytest

from outdraft.loadgen.endpoint import Endpoint
from outdraft.measure import bench, trial
from outdraft.measure.bench import BenchLoad, run_bench
from outdraft.measure.plateau import num_spare
from outdraft.measure.saturation import LoadPoint, Saturation, find_saturation
from outdraft.measure.summary import summarize
from outdraft.records import Record, Trial
from outdraft.workload.plan import plan_requests
from outdraft.workload.sets import built_in
from outdraft.workload.settings import LoadPlan

from .batching import Batching
from .made import done


def curve(loads: Sequence[int], throughput: Callable[[float], float]) -> list[LoadPoint]:
    """Of a closed loop: requests at a time = answers a second times seconds of an answer. Answers
    have 100 tokens."""
    return [
        LoadPoint(load, throughput(load), 1000 * load * 100 / throughput(load)) for load in loads
    ]


def found(points: Sequence[LoadPoint]) -> Saturation:
    saturation = find_saturation(points)
    assert saturation is not None
    return saturation


def flat_from(knee: float) -> Callable[[float], float]:
    return lambda load: 50 * min(load, knee)


@pytest.mark.parametrize("loads", [(1, 2, 4, 8, 16, 32), (8, 32, 1, 16, 4, 2), range(1, 33)])
@pytest.mark.parametrize("knee", [2, 4, 8, 16])
def test_a_sharp_knee(loads: Sequence[int], knee: int) -> None:
    saturation = found(curve(loads, flat_from(knee)))
    assert saturation.at is not None
    assert knee / 1.05 <= saturation.at <= knee
    assert saturation.words.startswith(f"saturated at concurrency {saturation.at:g}. More at a")


def test_a_knee_between_two_loads_is_the_next_heavier_one() -> None:
    assert found(curve((1, 2, 4, 8, 16), flat_from(5))).at == 8


def test_a_soft_knee() -> None:
    """100 n / (n + 4) tokens a second: 32 give 1.04 times what 24 do, and 1.11 times what 16 do."""
    soft = curve((1, 8, 16, 24, 32), lambda load: 100 * load / (load + 4))
    assert found(soft).at == 24


def test_throughput_that_falls_again() -> None:
    points = curve((1, 2, 4, 8, 16), lambda load: {1: 50, 2: 95, 4: 170, 8: 150, 16: 120}[load])
    assert found(points).at == 4


@pytest.mark.parametrize("noise", range(8))
def test_noise_of_two_percent_moves_it_by_one_load_at_most(noise: int) -> None:
    draw = random.Random(noise)
    points = curve((1, 2, 4, 8, 16, 32), lambda load: 50 * min(load, 8) * draw.gauss(1, 0.02))
    assert found(points).at in (8, 16)


@pytest.mark.parametrize("loads", [(1, 2, 4, 8), (10, 11), (19, 20), range(1, 30)])
def test_what_still_grows_is_not_saturated(loads: Sequence[int]) -> None:
    saturation = found(curve(loads, lambda load: 50.0 * load))
    assert saturation.at is None
    assert (
        saturation.words.startswith(f"not saturated up to concurrency {max(loads)}: it gives 1.")
        or max(loads) == 8
    )


def test_the_lightest_load_may_be_too_heavy_already() -> None:
    saturation = found(curve((8, 16, 32), flat_from(4)))
    assert saturation.at == 8
    assert "8 or less: it is the lightest load here" in saturation.words


def test_a_single_load_says_nothing() -> None:
    assert find_saturation(curve((4,), flat_from(2))) is None
    assert find_saturation([]) is None


def test_a_server_with_eight_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token takes 10 ms with up to eight at a time, and as much longer with more."""
    server = Batching({"http://x:1": lambda running: 0.01 * max(running / 8, 1)})
    monkeypatch.setattr(trial, "run_load", server)
    monkeypatch.setattr(bench, "wait_until_idle", lambda server: None)
    prompts = built_in()

    def plan(concurrency: int) -> LoadPlan:
        requests, spare = (
            plan_requests(part, mix=((0.0, 1.0),), seed=0, max_tokens=40)
            for part in (prompts[:96], prompts[96 : 96 + num_spare(concurrency)])
        )
        load = {"concurrency": concurrency}
        return LoadPlan(f"concurrency {concurrency}", requests, (), concurrency, load, spare=spare)

    result = run_bench(Endpoint("http://x:1"), [plan(each) for each in (2, 4, 8, 16, 32)], load={})
    assert result.is_valid
    assert [each.summary.tokens_per_s for each in result.loads] == pytest.approx(
        [200, 400, 800, 800, 800], rel=0.02
    )
    assert result.saturation is not None
    assert result.saturation.at == 8


class TestRates:
    @staticmethod
    def load(rate: float, seed: int = 0, capacity: int = 4) -> BenchLoad:
        """Poisson arrivals at a server that answers `capacity` at a time in a second each."""
        draw = random.Random(seed)
        free, now, records = [0.0] * capacity, 0.0, list[Record]()
        heapq.heapify(free)
        for number in range(-60, 240):
            now += draw.expovariate(rate)
            start = max(now, heapq.heappop(free))
            heapq.heappush(free, start + 1)
            e2e = 1000 * (start + 1 - now)
            records.append(done(number, e2e=e2e, at=1000 * now, is_warmup=number < 0))
        made = Trial("a", "", {"rate": rate}, tuple(records), "")
        return BenchLoad(f"{rate:g} requests/s", made, summarize(records))

    def saturation(self, rates: Sequence[float], seed: int = 0) -> Saturation:
        points = [self.load(each, seed).point for each in rates]
        return found([each for each in points if each is not None])

    @pytest.mark.parametrize("seed", range(5))
    def test_the_heaviest_rate_that_it_keeps_up_with(self, seed: int) -> None:
        saturation = self.saturation((1, 2, 3, 6, 12), seed)
        assert saturation.at == 3
        assert saturation.words.startswith("saturated between 3 and 6 requests/s: of ")
        most = re.search(r"and (\S+) at most", saturation.words)
        assert most is not None
        assert float(most[1]) == pytest.approx(4, rel=0.05)

    def test_it_keeps_up_with_all(self) -> None:
        saturation = self.saturation((1, 2, 3))
        assert (saturation.at, saturation.words) == (
            None, "keeps up with 3 requests/s, the most sent here",
        )  # fmt: skip

    def test_it_keeps_up_with_none(self) -> None:
        saturation = self.saturation((8, 16))
        assert saturation.at is None
        assert saturation.words.startswith("keeps up with none of these rates: of ")

    def test_a_load_that_is_not_valid_does_not_count(self) -> None:
        good = self.load(2)
        bad = Trial("a", "", {"rate": 2}, good.trial.records, "", is_valid=False)
        assert good.point is not None
        assert BenchLoad("x", bad, good.summary).point is None

from __future__ import annotations

import json

import pytest

from outdraft.tune.results import STATES, results_from_json
from tests.report.odd_results import ODD
from tests.report.sample_results import main, sample_results


def test_the_same_every_time() -> None:
    assert sample_results() == sample_results()
    assert sample_results(seed=8) != sample_results()


def test_it_is_like_a_real_one() -> None:
    results = sample_results()
    assert [load.concurrency for load in results.loads] == [1, 4, 16]
    states = {arm.state for load in results.loads for arm in load.arms}
    assert states == set(STATES)
    assert all(len(load.arms) == 15 for load in results.loads)
    decisions = [load.verdict.decision for load in results.loads if load.verdict is not None]
    assert decisions == ["SHIP", "SHIP", "DON'T SHIP"]


@pytest.mark.parametrize("name", ["sample", *ODD])
def test_through_json_and_back(name: str) -> None:
    results = sample_results() if name == "sample" else ODD[name]()
    again = results_from_json(json.loads(json.dumps(results.to_json())))
    assert again.loads[0].arms == results.loads[0].arms
    assert again.acceptance == results.acceptance


def test_as_a_command(tmp_path: object) -> None:
    main(str(tmp_path))

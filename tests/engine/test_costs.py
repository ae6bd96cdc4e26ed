"""Measured step costs: straight lines between them, and measuring leaves no trace."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine.costs import StepCosts, measure_step_costs
from outdraft.engine.loading import BLOCK_SIZE, with_cache
from outdraft.errors import OptionError
from outdraft.speculation import OFF
from outdraft.testing.tiny_models import tiny_model
from tests.engine.conftest import Load

PROMPT = list(range(3, 83))
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # keys and values, layers, kv heads, head size, float32
TIMES = st.floats(1e-4, 1.0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("costs"), "llama")


@pytest.mark.parametrize(
    ("num_tokens", "seconds"),
    [
        (1, 0.010),  # measured
        (4, 0.013),
        (8, 0.021),
        (2, 0.011),  # between
        (6, 0.017),
        (0, 0.010),  # before the first
        (12, 0.029),  # behind the last: the last line goes on
    ],
)
def test_straight_lines(num_tokens: int, seconds: float) -> None:
    costs = StepCosts({8: 0.021, 1: 0.010, 4: 0.013})
    assert costs.seconds(num_tokens) == pytest.approx(seconds)


def test_a_single_measurement_serves_all() -> None:
    costs = StepCosts({4: 0.02})
    assert [costs.seconds(num_tokens) for num_tokens in (1, 4, 9)] == [0.02] * 3


@given(measured=st.dictionaries(st.integers(1, 64), TIMES, min_size=1))
@settings(deadline=None)
def test_no_step_is_cheaper_than_the_smallest(measured: dict[int, float]) -> None:
    """Whatever noise was measured: a falling line would end below zero."""
    costs = StepCosts(measured)
    least = measured[min(measured)]
    assert all(costs.seconds(num_tokens) >= least for num_tokens in range(1, 200))


@given(times=st.lists(TIMES, min_size=1, max_size=8))
@settings(deadline=None)
def test_more_tokens_never_cost_less_where_none_did(times: list[float]) -> None:
    measured = {2**index: seconds for index, seconds in enumerate(sorted(times))}
    estimates = [StepCosts(measured).seconds(num_tokens) for num_tokens in range(1, 300)]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(estimates))


@pytest.mark.parametrize(
    ("num_blocks", "max_tokens", "largest"),
    [(64, 512, 64), (64, 10, 8), (64, 1, 1), (10, 512, 64), (3, 512, 16), (2, 512, 8)],
)
def test_measures_what_cache_and_step_have_room_for(
    folder: Path, load: Load, num_blocks: int, max_tokens: int, largest: int
) -> None:
    decoder = load(folder).runner.decoder
    model = with_cache(decoder, num_blocks * BLOCK_SIZE * TOKEN_BYTES, 512, reuse_prefixes=False)
    costs = measure_step_costs(model.runner, max_tokens=max_tokens)
    assert costs._sizes[0] == 1
    assert costs._sizes[-1] == largest
    assert all(seconds > 0 for seconds in costs._seconds)
    assert all(costs.seconds(num_tokens) > 0 for num_tokens in range(1, 513))
    model.pool.check([])


def written(engine: Engine) -> tuple[list[int], int]:
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    [generation] = engine.generate([PROMPT], params)
    return generation.tokens, generation.num_cached_tokens


@pytest.mark.parametrize("method", ["off", "ngram", "draft_model"])
def test_texts_before_and_behind_are_the_same(folder: Path, method: str) -> None:
    """The blocks it writes were a prompt's: nobody may find that prompt in them again."""
    draft = str(folder) if method == "draft_model" else None
    speculation = OFF if method == "off" else Speculation(method=method, draft=draft, k=4)
    engine = load_engine(str(folder), speculation, kv_cache_bytes=4 << 20)
    tokens, cached = written(engine)
    assert cached == 0
    assert written(engine) == (tokens, 79 // BLOCK_SIZE * BLOCK_SIZE)
    assert engine.measure_step_costs().seconds(1) > 0
    assert written(engine) == (tokens, 0)
    engine.pool.check([])


def test_not_while_something_runs(folder: Path) -> None:
    engine = load_engine(str(folder), kv_cache_bytes=4 << 20)
    engine.add_request(PROMPT, request_id="mine")
    with pytest.raises(OptionError, match="while requests are running"):
        engine.measure_step_costs()
    engine.abort("mine")
    assert engine.measure_step_costs().seconds(1) > 0

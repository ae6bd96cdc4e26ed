"""Measuring step costs leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine.costs import measure_step_costs
from outdraft.engine.loading import BLOCK_SIZE, with_cache
from outdraft.errors import OptionError
from outdraft.speculation import OFF
from outdraft.testing.tiny_models import tiny_model
from tests.engine.conftest import Load

PROMPT = list(range(3, 83))
TOKEN_BYTES = 2 * 2 * 2 * 16 * 4  # keys and values, layers, kv heads, head size, float32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("costs"), "llama")


@pytest.mark.parametrize(
    ("num_blocks", "max_tokens", "largest"),
    [(64, 512, 64), (64, 10, 8), (64, 1, 1), (10, 512, 64), (3, 512, 16), (2, 512, 8)],
)
def test_measures_what_cache_and_step_have_room_for(
    folder: Path, load: Load, num_blocks: int, max_tokens: int, largest: int
) -> None:
    decoder = load(folder).decoder
    model = with_cache(decoder, num_blocks * BLOCK_SIZE * TOKEN_BYTES, 512, reuse_prefixes=False)
    costs = measure_step_costs(model.runner, model.pool, max_tokens=max_tokens)
    assert next(iter(costs.measured)) == 1
    assert list(costs.measured)[-1] == largest
    assert all(seconds > 0 for seconds in costs.measured.values())
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

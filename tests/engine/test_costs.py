"""Measuring step costs leaves no trace."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence as Seq
from pathlib import Path

import pytest
import torch

from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.catalog import ModelFiles
from outdraft.engine import kept_costs as keeping
from outdraft.engine.costs import time_rounds
from outdraft.engine.kept_costs import KeptCosts, kept_costs
from outdraft.engine.loading import BLOCK_SIZE, with_cache
from outdraft.engine.native.library import library
from outdraft.engine.proposers.proposer import DraftRequest, Proposal
from outdraft.errors import OptionError
from outdraft.speculation import OFF
from outdraft.step_costs import RoundCosts
from outdraft.testing.tiny_heads import tiny_head
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
    told: list[tuple[int, int]] = []
    costs, _ = time_rounds(
        model.runner,
        model.pool,
        {},
        max_tokens=max_tokens,
        on_measured=lambda done, total: told.append((done, total)),
    )
    assert next(iter(costs.by_tokens)) == 1
    assert list(costs.by_tokens)[-1] == largest
    assert all(seconds > 0 for seconds in costs.by_tokens.values())
    assert all(costs.verification(num_tokens, 1, 128) > 0 for num_tokens in range(1, 513))
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))
    model.pool.check([])


def written(engine: Engine) -> tuple[list[int], int]:
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    [generation] = engine.generate([PROMPT], params)
    return generation.tokens, generation.num_cached_tokens


@pytest.mark.parametrize("method", ["off", "ngram", "draft_model", "eagle"])
def test_texts_before_and_behind_are_the_same(folder: Path, method: str, tmp_path: Path) -> None:
    """The blocks it writes were a prompt's: nobody may find that prompt in them again."""
    draft = str(folder) if method == "draft_model" else None
    if method == "eagle":
        draft = str(tiny_head(tmp_path / "head", folder))
    speculation = OFF if method == "off" else Speculation(method=method, draft=draft, k=4)
    engine = load_engine(str(folder), speculation, kv_cache_bytes=4 << 20)
    tokens, cached = written(engine)
    assert cached == 0
    assert written(engine) == (tokens, 79 // BLOCK_SIZE * BLOCK_SIZE)
    assert engine.measure_costs().verification(1, 1, 0) > 0
    assert written(engine) == (tokens, 0)
    engine.pool.check([])
    for proposer in engine._costs._drafts.values():
        assert proposer.pool.num_used == 0  # type: ignore[attr-defined]


def test_not_while_something_runs(folder: Path) -> None:
    engine = load_engine(str(folder), kv_cache_bytes=4 << 20)
    engine.add_request(PROMPT, request_id="mine")
    with pytest.raises(OptionError, match="while requests are running"):
        engine.measure_costs()
    engine.abort("mine")
    assert engine.measure_costs().verification(1, 1, 0) > 0


def test_drafting_is_timed_by_depth(folder: Path, tmp_path: Path) -> None:
    """Of each draft, with what it costs to read what was written meanwhile."""
    for method, draft in (
        ("draft_model", folder),
        ("eagle", tiny_head(tmp_path / "head", folder)),
    ):
        engine = load_engine(
            str(folder), Speculation(method, draft=str(draft)), kv_cache_bytes=4 << 20
        )
        costs = engine.measure_costs()
        assert list(costs.proposers) == [method]
        assert costs.drafting(method, depth=5, num_drafted=5) > 0
        assert costs.drafting(method, 5, 5) > costs.drafting(method, 1, 1)


@pytest.mark.parametrize("method", ["draft_model", "eagle"])
def test_as_many_texts_are_drafted_for_as_it_says(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    draft = folder if method == "draft_model" else tiny_head(tmp_path / "head", folder)
    engine = load_engine(str(folder), Speculation(method, draft=str(draft)), kv_cache_bytes=4 << 20)
    assert engine.drafting is not None
    proposer = engine.drafting.proposers[method]
    asked: list[tuple[int, int]] = []
    propose = proposer.propose

    def noted(requests: Seq[DraftRequest]) -> list[Proposal]:
        asked.append((len(requests), requests[0].k))
        return propose(requests)

    monkeypatch.setattr(proposer, "propose", noted)
    engine.measure_costs()
    timed = asked[1::2]  # before each, what was written is read by a draft of one token
    assert {(count, 1) for count, _ in timed} == {*asked[::2]}
    assert {*timed} == {(1, 1), (1, 5), (4, 1), (4, 5), (12, 1), (12, 5)}


def test_costs_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "costs" / "one.json"
    kept = KeptCosts(path)
    assert kept.read() is None
    costs = RoundCosts({1: 0.01, 8: 0.02}, context=128, per_read=1e-6)
    kept.write(costs, is_steady=True)
    assert kept.read() == costs
    path.write_text("{}")  # of another version, or cut off
    assert kept.read() is None
    kept.write(costs, is_steady=True)
    os.utime(path, (0, 0))  # machines change
    assert kept.read() is None


def test_costs_of_a_busy_moment_are_kept_for_minutes(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    kept, costs = KeptCosts(path), RoundCosts({1: 0.01, 8: 0.02})
    for is_steady in (True, False):
        kept.write(costs, is_steady=is_steady)
        ages = (300, 1200)
        found = []
        for age in ages:
            then = time.time() - age
            os.utime(path, (then, then))
            found.append(kept.read() is not None)
        assert found == [True, is_steady]


@pytest.mark.skipif(library() is None, reason="the library is not compiled here")
def test_costs_of_other_compiled_code_are_not_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_SETTLED_S", 0)

    def where() -> Path:
        kept = kept_costs({"target": ModelFiles("tiny", folder)}, torch.device("cpu"))
        assert kept is not None
        return kept._path

    usual = where()
    assert where() == usual
    monkeypatch.setattr(keeping, "sources_of", lambda library: "others")
    assert where() != usual


def test_costs_of_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    kept = KeptCosts(tmp_path / "file" / "one.json")
    kept.write(RoundCosts({1: 0.01}), is_steady=True)
    assert kept.read() is None

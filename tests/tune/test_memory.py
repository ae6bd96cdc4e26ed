"""Prompts that come again: their answers are not remembered from block to block, unless wanted."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from outdraft import load_engine
from outdraft.backends.embedded import Embedded
from outdraft.backends.process import EngineProcess
from outdraft.speculation import Speculation
from outdraft.testing.tiny_models import tiny_model
from outdraft.tune.arm import Load
from outdraft.tune.engines import RunningEngine
from outdraft.tune.journal import Block, count_drafts
from outdraft.tune.lab import Lab
from outdraft.workload import plan
from outdraft.workload.sets import built_in
from tests.server.serving import serving

SUFFIX = Speculation("suffix", k=4)
LOAD = Load(concurrency=4)
THIRD = 5  # blocks of four: in each third every prompt comes once


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    folder = tiny_model(tmp_path_factory.mktemp("tiny"), "llama")
    engine = load_engine(str(folder), SUFFIX, kv_cache_bytes=8 << 20)
    with serving(engine, can_forget=True, always_metrics=True) as (url, _):
        played = SimpleNamespace(url=url, died=lambda: None, stop=lambda: None, processes=list)
        yield cast(EngineProcess, played)


def accepted_per_token(blocks: list[Block]) -> float:
    acceptance, num_tokens, num_texts = count_drafts(blocks)
    assert num_texts == 4 * THIRD
    return acceptance.num_accepted_tokens / num_tokens


@pytest.mark.parametrize("keeps_memory", [False, True])
def test_twenty_prompts_three_times(
    process: EngineProcess, monkeypatch: pytest.MonkeyPatch, keeps_memory: bool
) -> None:
    """The texts of a tiny model are noise: only without a salt is an answer the same again."""
    monkeypatch.setattr(plan, "salted", lambda planned, salt: planned)
    prompts = list(built_in())[:20]
    requests = plan.plan_requests(3 * prompts, mix=((0.0, 1.0),), seed=0, max_tokens=16)
    blocks = plan.Blocks(requests, size=4, seed=0)
    with Lab(
        Embedded(),
        {LOAD.name: blocks},
        lambda speculation, name: RunningEngine(process),
        longest=4,
        keeps_memory=keeps_memory,
    ) as lab:
        RunningEngine(process).forget("/forget")
        measured = [lab.measure(LOAD, SUFFIX, number) for number in range(3 * THIRD)]
    found = [each for each in measured if isinstance(each, Block)]
    first, last = (accepted_per_token(part) for part in (found[:THIRD], found[-THIRD:]))
    if keeps_memory:
        assert last > first + 0.3
    else:
        assert last == pytest.approx(first, abs=0.02)

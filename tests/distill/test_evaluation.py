"""What is counted along a text against what the engine really does with the same head."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outdraft.acceptance import Acceptance
from outdraft.distill.data.sampler import SampledText
from outdraft.distill.data.shards import Corpus, TrainingText, write_shard
from outdraft.distill.evaluation import count_rounds, estimate_acceptance, figures
from outdraft.distill.settings import ModelSize
from outdraft.distill.target import Target, load_target
from outdraft.distill.training.drafts import load_weights
from outdraft.distill.training.head_model import HeadModel
from outdraft.distill.training.small_model import SmallModel, model_spec
from outdraft.engine.assemble import load_engine
from outdraft.engine.sequence import SamplingParams
from outdraft.modelspec import read_head
from outdraft.speculation import Speculation
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model

PROMPTS = [[40 + (i * 7 + j * 3) % 8 for j in range(10 + i)] for i in range(12)]
K, TOKENS = 4, 40


def engine_texts(
    target: Path, speculation: Speculation, temperature: float, into: Path
) -> tuple[Corpus, Acceptance]:
    engine = load_engine(str(target), speculation, kv_cache_bytes=1 << 22)
    params = [
        SamplingParams(temperature=temperature, max_tokens=TOKENS, seed=i, ignore_eos=True)
        for i in range(len(PROMPTS))
    ]
    written = engine.generate(PROMPTS, params)
    nothing = torch.zeros(TOKENS, 1)
    texts = [
        TrainingText(
            prompt,
            SampledText(torch.tensor(one.tokens).int(), nothing.int(), nothing.half(), False),
            temperature,
            "chat",
        )
        for prompt, one in zip(PROMPTS, written, strict=True)
    ]
    write_shard(into, texts)
    return Corpus([into]), engine.acceptance


@pytest.fixture(scope="module")
def head_path(target_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_head(tmp_path_factory.mktemp("head"), target_path)


def test_a_heads_rounds_are_the_engines(
    target: Target, target_path: Path, head_path: Path, tmp_path: Path
) -> None:
    spec = read_head(head_path)
    head = HeadModel(spec, spec.taps(target.spec.num_layers))
    load_weights(head, head_path, target)
    speculation = Speculation(method="eagle", k=K, draft=str(head_path))
    corpus, seen = engine_texts(target_path, speculation, 0.0, tmp_path / "s")
    counted = estimate_acceptance(head, target, corpus, K)["0"]
    assert counted["all"] == figures(seen)
    assert seen.num_accepted_tokens > 0


def test_a_models_rounds_are_the_engines_or_nearly(target: Target, tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "t", "llama")
    draft_path = tiny_model(tmp_path / "d", "llama", perturb=0.03)
    target = load_target(str(path), device="cpu", dtype="float32")
    size = ModelSize(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=96)
    draft = SmallModel(model_spec(target.spec, size))
    draft.network = load_target(str(draft_path), device="cpu", dtype="float32").network
    speculation = Speculation(method="draft_model", k=K, draft=str(draft_path))
    corpus, seen = engine_texts(path, speculation, 0.0, tmp_path / "s")
    assert estimate_acceptance(draft, target, corpus, K)["0"]["judged"] == figures(seen)
    # With noise the text is the same, the noise another one that would have drawn it.
    corpus, seen = engine_texts(path, speculation, 0.8, tmp_path / "hot")
    counted = estimate_acceptance(draft, target, corpus, K)["0.8"]["all"]
    assert counted["length"] == pytest.approx(figures(seen)["length"], rel=0.15)


def test_rounds_are_walked() -> None:
    # Prompt of 2, answer tokens 2 … 9; guess (j, i) right for tokens 3, 4, 6 wherever.
    hits = torch.zeros(2, 10, dtype=torch.bool)
    hits[:, [3, 4, 6]] = True
    counted = Acceptance()
    count_rounds(hits, prompt_length=2, length=10, into=counted)
    # 2 | 3 4 +5 | 6 +7 | 8 is wrong: the target's own; 9 needs no draft.
    assert (counted.num_drafts, counted.num_accepted_tokens) == (3, 3)
    assert counted.drafted_per_position == [3, 2]
    assert counted.accepted_per_position == [2, 1]

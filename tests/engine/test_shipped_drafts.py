"""The drafts that ship, on the model they were distilled from: accepted often, the same text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft import Engine, SamplingParams, Speculation, load_engine

PROMPTS = (
    "Write a short paragraph about the sea.",
    "Write a Python function that returns the sum of a list.",
)
PARAMS = (SamplingParams(), SamplingParams(temperature=0.8, seed=5))

pytestmark = pytest.mark.model


def written(engine: Engine, k: int | None = None, max_tokens: int = 40) -> list[list[int]]:
    ids = [engine.tokenizer.apply_chat([{"role": "user", "content": each}]) for each in PROMPTS]
    wanted = [replace(params, max_tokens=max_tokens) for params in PARAMS]
    return [each.tokens for params in wanted for each in engine.generate(ids, params, k=k)]


def engine_with(method: str, draft: str, quantization: str) -> Engine:
    speculation = Speculation(method, k=4, draft=draft, quantization=quantization)
    return load_engine("smollm2-135m", speculation, kv_cache_bytes=64 << 20)


def check_accepted(engine: Engine) -> None:
    assert (engine.acceptance.rate or 0) > 0.25
    assert (engine.acceptance.length or 0) > 1.8


@pytest.mark.slow
def test_a_shipped_draft() -> None:
    """One engine, with drafts and without: half of the time is loading."""
    engine = engine_with("eagle", "smollm2-135m-eagle", "int8")
    drafted = written(engine, max_tokens=24)
    check_accepted(engine)
    assert drafted == written(engine, k=0, max_tokens=24)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "draft", "quantization"),
    [
        ("draft_model", "smollm2-135m-draft", "int8"),
        ("eagle", "smollm2-135m-eagle", "none"),
        ("eagle", "smollm2-135m-eagle", "int8"),
    ],
)
def test_every_shipped_draft(
    method: str, draft: str, quantization: str, plain: list[list[int]]
) -> None:
    engine = engine_with(method, draft, quantization)
    assert written(engine) == plain
    check_accepted(engine)


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return written(load_engine("smollm2-135m", kv_cache_bytes=64 << 20))

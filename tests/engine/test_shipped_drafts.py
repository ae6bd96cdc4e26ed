"""The drafts that ship, on the model they were distilled from: accepted often, the same text."""

from __future__ import annotations

import pytest

from outdraft import Engine, SamplingParams, Speculation, load_engine

PROMPTS = (
    "Write a short paragraph about the sea.",
    "Write a Python function that returns the sum of a list.",
)
PARAMS = (SamplingParams(max_tokens=40), SamplingParams(temperature=0.8, seed=5, max_tokens=40))


def written(engine: Engine) -> list[list[int]]:
    ids = [engine.tokenizer.apply_chat([{"role": "user", "content": each}]) for each in PROMPTS]
    return [each.tokens for params in PARAMS for each in engine.generate(ids, params)]


@pytest.mark.model
@pytest.mark.parametrize(
    ("method", "draft", "quantization"),
    [
        ("draft_model", "smollm2-135m-draft", "int8"),
        ("eagle", "smollm2-135m-eagle", "none"),
        ("eagle", "smollm2-135m-eagle", "int8"),
    ],
)
def test_a_shipped_draft(
    method: str, draft: str, quantization: str, plain: list[list[int]]
) -> None:
    speculation = Speculation(method, k=4, draft=draft, quantization=quantization)
    engine = load_engine("smollm2-135m", speculation)
    assert written(engine) == plain
    assert (engine.acceptance.rate or 0) > 0.25
    assert (engine.acceptance.length or 0) > 1.8


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return written(load_engine("smollm2-135m"))

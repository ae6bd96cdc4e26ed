"""The same code on a GPU in eager mode. Skipped, visibly, where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from outdraft import SamplingParams, Speculation, load_engine
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import FAMILIES, tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PROMPTS = ["one two three one two three one", "red green blue red green", "a b c d a b c"]
SETTINGS = [
    SamplingParams(max_tokens=48, ignore_eos=True),
    SamplingParams(
        max_tokens=48, ignore_eos=True, temperature=0.8, seed=3, top_p=0.95, presence_penalty=0.4
    ),
]


def texts(target: Path, speculation: Speculation, **options: object) -> list[list[int]]:
    engine = load_engine(str(target), speculation, kv_cache_bytes=1 << 24, **options)  # type: ignore[arg-type]
    found = []
    for params in SETTINGS:
        found += [each.tokens for each in engine.generate(PROMPTS, params)]
    engine.pool.check([])
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_writes_what_the_cpu_writes(family: str, tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target", family)
    off = Speculation()
    on_gpu = texts(target, off, device="cuda", dtype="float32")
    assert on_gpu == texts(target, off, device="cpu", dtype="float32")


@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model", "eagle"])
@pytest.mark.parametrize("family", FAMILIES)
def test_speculation_keeps_the_text(family: str, method: str, tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target", family)
    draft = tiny_model(tmp_path / "draft", family, perturb=0.1)
    if method == "eagle":
        draft = tiny_head(tmp_path / "head", target)
    speculation = Speculation(method=method, k=4, draft=str(draft))
    without = texts(target, Speculation(), device="cuda", dtype="float32")
    assert texts(target, speculation, device="cuda", dtype="float32") == without


@pytest.mark.parametrize("rule", ["rejection", "typical"])
def test_other_rules_run(rule: str, tmp_path: Path) -> None:
    target = tiny_model(tmp_path / "target", "llama")
    draft = tiny_model(tmp_path / "draft", "llama", perturb=0.1)
    speculation = Speculation(method="draft_model", k=4, draft=str(draft), rule=rule)
    assert all(len(text) == 48 for text in texts(target, speculation, device="cuda"))


@pytest.mark.parametrize("hidden", [256, 576])  # 576 is no multiple of 128
@pytest.mark.parametrize("quantization", ["none", "int8", "int4"])
def test_bfloat16_and_packed_weights_run(quantization: str, hidden: int, tmp_path: Path) -> None:
    target = tiny_model(
        tmp_path / "target",
        "llama",
        hidden=hidden,
        heads=hidden // 64,
        kv_heads=hidden // 64,
        head_dim=64,
        intermediate=512,
    )
    found = texts(target, Speculation(), device="cuda", quantization=quantization)
    assert all(len(text) == 48 for text in found)

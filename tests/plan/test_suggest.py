"""Drafts for a target: only such that can pair, the usual ratio first."""

from __future__ import annotations

from pathlib import Path

import pytest

from outdraft.plan.budget import PlanSettings
from outdraft.plan.devices import parse_gpu, parse_memory
from outdraft.plan.models import TABLE, find_model
from outdraft.plan.pairing import pair
from outdraft.plan.suggest import suggest_drafts
from outdraft.testing.tiny_models import tiny_model

SETTINGS = PlanSettings(max_model_len=8192)


@pytest.mark.parametrize("name", TABLE)
def test_every_suggestion_can_pair(name: str) -> None:
    target = TABLE[name]
    found = suggest_drafts(target, None, SETTINGS, target.published_quantization)
    assert name not in [each.name for each in found]
    for each in found:
        pairing = pair(target, TABLE[each.name], 8192)
        assert pairing.same_tokenizer
        assert pairing.size_ratio == each.size_ratio
        assert each.why


def test_the_usual_ratio_comes_first_with_why() -> None:
    target = TABLE["llama-3.1-70b"]
    found = suggest_drafts(target, parse_memory("80GB:2"), SETTINGS, "fp8")
    assert [each.name for each in found] == ["llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b"]
    assert found[0].why == (
        "same tokenizer (llama3); 1:9 is the usual ratio; 10% of memory, within 15%"
    )
    assert [each.kv_tokens for each in found] == sorted(
        (each.kv_tokens for each in found), key=lambda each: each or 0
    )


def test_drafts_whose_heads_do_not_divide_are_left_out() -> None:
    target = TABLE["qwen2.5-72b"]
    names = [each.name for each in suggest_drafts(target, None, SETTINGS, "int4")]
    spread = [each.name for each in suggest_drafts(target, parse_gpu("h100:8"), SETTINGS, "int4")]
    assert "qwen2.5-0.5b" in names
    assert "qwen2.5-0.5b" not in spread


def test_files_are_matched_by_family_and_vocabulary(tmp_path: Path) -> None:
    target = find_model(str(tiny_model(tmp_path / "model", "llama")))
    assert suggest_drafts(target, None, SETTINGS, "files") == ()


def test_a_draft_that_is_small_at_work_but_large_in_memory_is_left_out() -> None:
    target = TABLE["qwen3-32b"]
    names = [each.name for each in suggest_drafts(target, parse_gpu("h200"), SETTINGS, "bf16")]
    assert "qwen3-30b-a3b" not in names
    assert names[0] == "qwen3-4b"
    tight = suggest_drafts(target, parse_memory("80GB"), SETTINGS, "bf16")
    assert tight[0].name == "qwen3-0.6b", "the only one that leaves a KV cache"
    assert [each.kv_tokens for each in tight[1:]] == [0] * (len(tight) - 1)
    big = suggest_drafts(TABLE["qwen3-235b-a22b"], None, SETTINGS, "bf16")
    assert any("mixture of experts" in each.why for each in big if each.name == "qwen3-30b-a3b")

"""Advice: every change that is named was computed, and does what it says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.plan import Plan, PlanSettings, parse_gpu, parse_memory, plan_memory
from outdraft.plan.models import TABLE
from tests.plan.test_pairing import head

TARGET, DRAFT = TABLE["llama-3.1-70b"], TABLE["llama-3.1-8b"]
SMALL = TABLE["llama-3.1-8b"]
KEYS = {
    "--max-model-len": "max_model_len",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--kv-dtype": "kv_dtype",
}


def changed(plan: Plan, line: str) -> Plan:
    """The same plan with what a line advises."""
    quantizations = {
        "target_quantization": plan.headline.target_quantization,
        "draft_quantization": plan.headline.draft_quantization,
    }
    kept, draft, devices = plan.settings, plan.draft, plan.devices
    if found := re.match(r"(--[a-z-]+-quantization) (\w+)", line):
        quantizations[found[1][2:].replace("-", "_")] = found[2]
    elif found := re.match(r"(--[a-z-]+) (\w+)", line):
        value = int(found[2]) if found[2].isdecimal() else found[2]
        kept = replace(kept, **{KEYS[found[1]]: value})
    elif found := re.match(r"(\d+) such devices (with --draft-tensor-parallel-size 1 )?fit", line):
        assert devices is not None
        devices = replace(devices, count=int(found[1]))
        kept = replace(kept, draft_ranks=1 if found[2] else kept.draft_ranks)
    else:
        assert line == "without the draft it fits"
        draft, quantizations["draft_quantization"] = None, None
    return plan_memory(plan.target, draft, devices, kept, **quantizations)


@given(
    gib=st.integers(6, 400),
    count=st.sampled_from([1, 2, 4]),
    length=st.sampled_from([2048, 8192, 131_072]),
    seqs=st.sampled_from([1, 64, 1024]),
    chunk=st.sampled_from([1024, 8192, 65_536]),
    k=st.integers(1, 8),
    has_draft=st.booleans(),
    is_large=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_what_is_advised_holds(
    gib: int, count: int, length: int, seqs: int, chunk: int, k: int, has_draft: bool,
    is_large: bool,
) -> None:  # fmt: skip
    plan = plan_memory(
        TARGET if is_large else SMALL,
        TABLE["llama-3.2-1b"] if has_draft else None,
        parse_memory(f"{gib}GiB:{count}"),
        PlanSettings(length, seqs, chunk, k),
    )
    for line in plan.advice:
        again = changed(plan, line)
        assert again.headline.serves, line
        if plan.headline.serves:  # then it is about more
            assert plan.room is not None
            assert again.room is not None
            assert again.room.kv_tokens > plan.room.kv_tokens
            assert f"{again.room.kv_tokens:,} KV tokens" in line


def test_ways_to_serve() -> None:
    plan = plan_memory(TARGET, DRAFT, parse_gpu("h100:2"), PlanSettings(8192))
    assert plan.advice == (
        "--target-quantization fp8 fits",
        "without the draft it fits",
        "4 such devices fit it",
    )


@pytest.mark.parametrize(
    ("gpu", "length", "seqs", "advised"),
    [
        ("rtx4090", 131_072, 256, "--max-model-len 37936 is the longest that fits"),
        ("rtx4090", 40_960, 256, "--max-num-seqs 64 keeps fewer rows of logits, and fits"),
        ("rtx4090", 65_536, 256, "--kv-dtype fp8 halves the KV cache, and fits"),
        ("rtx4090", 8192, 256, "--max-num-seqs 8, as few full-length texts fit at once"),
    ],
)
def test_one_setting_is_often_enough(gpu: str, length: int, seqs: int, advised: str) -> None:
    plan = plan_memory(SMALL, None, parse_gpu(gpu), PlanSettings(length, seqs))
    assert any(line.startswith(advised) for line in plan.advice), plan.advice


def test_nothing_to_advise() -> None:
    plan = plan_memory(SMALL, None, parse_gpu("h200"), PlanSettings(8192, 64))
    assert plan.advice == ()
    assert plan_memory(SMALL, None, None, PlanSettings(8192)).advice == ()
    hopeless = plan_memory(TABLE["llama-3.1-405b"], None, parse_gpu("t4"), PlanSettings(8192))
    assert hopeless.advice == ()


def test_a_draft_model_that_cannot_be_split_is_named() -> None:
    """qwen2.5-0.5b has 14 attention heads; engines split a draft model as its target."""
    target, draft = TABLE["qwen2.5-72b"], TABLE["qwen2.5-0.5b"]
    plan = plan_memory(target, draft, parse_gpu("h100"), PlanSettings(8192))
    assert plan.advice[-1].startswith("4 such devices have room, but the attention heads of qwen2")
    other = plan_memory(target, TABLE["qwen2.5-1.5b"], parse_gpu("h100"), PlanSettings(8192))
    assert "4 such devices fit it" in other.advice, "12 heads"
    alone = plan_memory(target, draft, parse_gpu("h100"), PlanSettings(8192, draft_ranks=1))
    assert "4 such devices fit it" in alone.advice


def test_a_head_that_cannot_be_split_sits_on_one(tmp_path: Path) -> None:
    shape = {
        "hidden_size": 4096, "intermediate_size": 14336, "vocab_size": 128256, "head_dim": 128,
        "num_attention_heads": 7, "num_key_value_heads": 7, "draft_vocab_size": 32000,
    }  # fmt: skip
    uneven = head(tmp_path / "head", **shape)
    plan = plan_memory(SMALL, uneven, parse_gpu("t4"), PlanSettings(8192, 64))
    [line] = [each for each in plan.advice if "such devices" in each]
    assert line == "2 such devices with --draft-tensor-parallel-size 1 fit it"
    assert changed(plan, line).headline.serves

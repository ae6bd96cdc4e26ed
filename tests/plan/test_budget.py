"""What is left for the KV cache: the arithmetic people know, and what must always hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import OptionError
from outdraft.plan.budget import BLOCK_TOKENS, Deployment, PlanSettings, shares_of
from outdraft.plan.devices import Devices, parse_gpu, parse_memory
from outdraft.plan.models import TABLE, find_model
from outdraft.testing.tiny_models import tiny_model

TARGET, DRAFT = TABLE["llama-3.1-70b"], TABLE["llama-3.1-8b"]
SMOLLM2 = TABLE["smollm2-135m"]
SHORT = PlanSettings(max_model_len=8192)
GB = 10**9


@pytest.mark.parametrize(
    ("memory", "target", "weights", "left", "serves"),
    [
        ("80GB:2", "int8", 86, 74, True),
        ("80GB:2", "bf16", 156, 4, False),
        ("141GB:2", "bf16", 156, 126, True),
    ],
)
def test_the_known_arithmetic(
    memory: str, target: str, weights: int, left: int, serves: bool
) -> None:
    """Rounded billions times bytes. Ours also counts embedding and head in 16 bits."""
    mix = Deployment(TARGET, DRAFT, parse_memory(memory), SHORT).mix(target, "bf16")
    assert (mix.target_bytes + mix.draft_bytes) / GB == pytest.approx(weights, rel=0.035)
    assert mix.left_bytes is not None
    assert mix.left_bytes / GB == pytest.approx(left, abs=3)
    assert mix.serves is serves


def test_as_many_tokens_as_vllm_reports() -> None:
    """vLLM 0.32 on a CPU with 1 GiB for the cache, float32: 23,296 tokens."""
    settings = replace(SHORT, kv_dtype="float32", kv_cache_bytes=2**30)
    room = Deployment(SMOLLM2, None, None, settings).room("bf16", None)
    assert room.kv_tokens == 23_296
    assert room.full_sequences == pytest.approx(23_301 / 8192, rel=1e-3)


def test_as_many_tokens_as_vllm_reports_with_a_draft(tmp_path: Path) -> None:
    """The same with a draft model of 2 layers beside 8: 104,832 tokens, in blocks of 128."""
    sizes = {"hidden": 256, "heads": 4, "kv_heads": 2, "head_dim": 64}
    target, draft = (
        find_model(str(tiny_model(tmp_path / str(layers), "llama", layers=layers, **sizes)))
        for layers in (8, 2)
    )
    settings = PlanSettings(512, kv_dtype="float32", kv_cache_bytes=2**30)
    room = Deployment(target, draft, None, settings).room("files", "files")
    assert room.kv_tokens == pytest.approx(104_832, rel=0.001)


def test_parts_of_a_device_add_up() -> None:
    devices, sampled = parse_gpu("h100:2"), replace(SHORT, is_probabilistic=True)
    room = Deployment(TARGET, DRAFT, devices, sampled).room("int8", "bf16")
    assert sum(room.parts.values()) + room.kv_cache_bytes + room.unused_bytes == 81_559 << 20
    assert room.parts["draft_logits"] == 256 * 5 * 128_256 * 4
    assert room.kv_bytes_per_token == (2 * 80 * 4 * 128 + 2 * 32 * 4 * 128) * 2
    assert room.reserve_bytes == sum(
        room.parts[name] for name in ("draft_logits", "activations", "cuda_graphs", "runtime")
    )
    shares = shares_of(room, devices)
    assert shares.target == room.parts["target_weights"] / (81_559 << 20)
    assert shares.headroom == room.kv_cache_bytes / (81_559 << 20)


def test_what_is_not_used_is_not_counted() -> None:
    """Drafts are greedy unless it is said, as `emit` writes them for the rule coupled."""
    settings = replace(SHORT, enforce_eager=True)
    room = Deployment(TARGET, DRAFT, parse_gpu("h100:2"), settings).room("int8", "bf16")
    assert set(room.parts) == {"target_weights", "draft_weights", "activations", "runtime"}


@pytest.mark.parametrize("target", ["llama-3.1-8b", "gpt-oss-20b", "smollm2-135m"])
def test_the_longest_text_fits_and_no_longer_one(target: str) -> None:
    model, devices = TABLE[target], parse_gpu("rtx4090")
    room = Deployment(model, None, devices, SHORT).room(model.published_quantization)
    assert 0 < room.longest_text <= model.spec.max_context
    longest = replace(SHORT, max_model_len=room.longest_text)
    assert Deployment(model, None, devices, longest).room(model.published_quantization).serves
    if room.longest_text <= model.spec.max_context - BLOCK_TOKENS:
        longer = replace(SHORT, max_model_len=room.longest_text + BLOCK_TOKENS)
        assert (
            not Deployment(model, None, devices, longer).room(model.published_quantization).serves
        )


def test_nothing_left_is_no_text_at_all() -> None:
    assert Deployment(TARGET, None, parse_gpu("t4"), SHORT).room("bf16").longest_text == 0


def test_a_draft_on_one_device_fills_that_one() -> None:
    devices = parse_gpu("h100:2")
    spread = Deployment(TARGET, DRAFT, devices, SHORT).room("int8", "bf16")
    alone = Deployment(TARGET, DRAFT, devices, replace(SHORT, draft_ranks=1)).room("int8", "bf16")
    assert alone.parts["draft_weights"] == pytest.approx(
        2 * spread.parts["draft_weights"], rel=0.01
    )
    assert alone.kv_tokens < spread.kv_tokens
    mix = Deployment(TARGET, DRAFT, devices, replace(SHORT, draft_ranks=1)).mix("int8", "bf16")
    assert mix.draft_bytes == alone.parts["draft_weights"], "once, not on both"


def test_without_memory_there_are_sizes_alone() -> None:
    mix = Deployment(TARGET, DRAFT, None, SHORT).mix("bf16", "int4")
    assert (mix.left_bytes, mix.without, mix.with_draft, mix.serves) == (None,) * 4
    assert mix.lost_share() is None


def test_a_window_makes_room() -> None:
    oss = TABLE["gpt-oss-20b"]
    whole = replace(oss, spec=replace(oss.spec, windows=()))
    settings = PlanSettings(max_model_len=131_072)
    ours, theirs = (
        Deployment(each, None, parse_gpu("h100"), settings).room("mxfp4", None)
        for each in (oss, whole)
    )
    assert ours.kv_tokens == pytest.approx(2 * theirs.kv_tokens / (1 + 8319 / 131_072), rel=1e-3)
    assert ours.kv_bytes_per_token == theirs.kv_bytes_per_token


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_model_len": 0}, "--max-model-len must be at least 1, got 0"),
        ({"max_num_seqs": -1}, "--max-num-seqs"),
        ({"k": 0}, "--k must"),
        ({"utilization": 0.0}, "--utilization"),
        ({"utilization": 1.1}, "--utilization"),
        ({"utilization": float("nan")}, "--utilization"),
        ({"kv_dtype": "int3"}, "unknown KV dtype 'int3'"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, float], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        replace(SHORT, **changes)


@pytest.mark.parametrize("ranks", [0, 3, 4])
def test_a_draft_is_on_one_device_or_on_all(ranks: int) -> None:
    settings = replace(SHORT, draft_ranks=ranks)
    with pytest.raises(OptionError, match=r"must be 1 or the number of devices \(2\)"):
        Deployment(TARGET, DRAFT, parse_gpu("h100:2"), settings).mix("bf16", "bf16")


@given(
    gib=st.integers(1, 400),
    count=st.sampled_from([1, 2, 4, 8]),
    target=st.sampled_from(["bf16", "fp8", "int8", "int4"]),
    draft=st.sampled_from(["bf16", "int4"]),
    k=st.integers(1, 8),
    max_model_len=st.integers(1, 131_072),
    is_alone=st.booleans(),
)
def test_a_draft_never_makes_room(
    gib: int, count: int, target: str, draft: str, k: int, max_model_len: int, is_alone: bool
) -> None:
    devices: Devices = parse_memory(f"{gib}GiB:{count}")
    settings = PlanSettings(max_model_len, k=k, draft_ranks=1 if is_alone else None)
    mix = Deployment(TARGET, DRAFT, devices, settings).mix(target, draft)
    assert mix.without is not None
    assert mix.with_draft is not None
    assert mix.with_draft.kv_cache_bytes < mix.without.kv_cache_bytes
    assert mix.with_draft.kv_tokens <= mix.without.kv_tokens
    for room in (mix.without, mix.with_draft):
        assert room.kv_tokens % BLOCK_TOKENS == 0
        assert room.kv_tokens * room.kv_bytes_per_token <= max(room.kv_cache_bytes, 0)
        assert room.serves == (room.full_sequences >= 1)
        assert room.longest_text <= 131_072
        assert room.longest_text * room.kv_bytes_per_token <= max(room.kv_cache_bytes, 0)
        whole = sum(room.parts.values()) + room.kv_cache_bytes + room.unused_bytes
        assert whole == devices.bytes_each

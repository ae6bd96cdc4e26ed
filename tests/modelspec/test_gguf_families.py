"""GGUF headers of families that have keys of their own."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from outdraft.errors import CorruptFileError, UnsupportedArchitectureError
from outdraft.modelspec.gguf_spec import read_gguf
from outdraft.modelspec.spec import Experts, Latent

PLAIN = {
    "block_count": 2,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "context_length": 512,
}


def write(path: Path, name: str, values: dict[str, int], tensors: tuple[str, ...] = ()) -> Path:
    writer = gguf.GGUFWriter(path, name)
    for key, value in values.items():
        writer.add_uint32(f"{name}.{key}", value)
    writer.add_tensor("token_embd.weight", np.zeros((100, 32), np.float32))
    for tensor in tensors:
        writer.add_tensor(tensor, np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_mixture(tmp_path: Path) -> None:
    values = {**PLAIN, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 16}
    found = read_gguf(write(tmp_path / "a.gguf", "qwen3moe", values))
    assert (found.family, found.experts) == ("qwen3_moe", Experts(8, 2, 16))
    assert (found.num_parameters, found.parameter_bytes) == (3200, 12_800)
    assert found.tie_embeddings
    llama = {**PLAIN, "expert_count": 8, "expert_used_count": 2}
    found = read_gguf(write(tmp_path / "b.gguf", "llama", llama))
    assert (found.family, found.experts) == ("mixtral", Experts(8, 2, 64))


def test_gpt_oss(tmp_path: Path) -> None:
    values = {**PLAIN, "expert_count": 4, "expert_used_count": 2, "attention.sliding_window": 128}
    tensors = (
        "blk.0.attn_sinks.weight",
        "blk.0.attn_q.bias",
        "blk.0.attn_output.bias",
        "blk.1.ffn_down_exps.bias",
        "blk.1.ffn_gate_inp.bias",
        "output.weight",
    )
    found = read_gguf(write(tmp_path / "a.gguf", "gpt-oss", values, tensors))
    assert found.family == "gpt_oss"
    assert found.windows == (128, None)
    assert (found.has_sinks, found.qkv_bias, found.o_bias) == (True, True, True)
    assert found.experts == Experts(4, 2, 64, has_bias=True, has_router_bias=True)
    assert not found.tie_embeddings


def test_latent_attention(tmp_path: Path) -> None:
    values = {
        **PLAIN,
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": 24,
        "attention.kv_lora_rank": 16,
        "attention.key_length": 24,
        "attention.value_length": 16,
        "attention.key_length_mla": 20,
        "attention.value_length_mla": 12,
        "rope.dimension_count": 8,
        "expert_count": 8,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "leading_dense_block_count": 1,
        "expert_feed_forward_length": 16,
    }
    tensors = ("blk.1.exp_probs_b.bias",)
    found = read_gguf(write(tmp_path / "a.gguf", "deepseek2", values, tensors))
    assert found.latent == Latent(24, 16, 12, 8, 12)
    assert found.experts == Experts(8, 2, 16, shared=1, dense_layers=1, has_router_bias=True)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    values = {key: value for key, value in PLAIN.items() if key != "block_count"}
    with pytest.raises(CorruptFileError, match=r"lacks the key 'llama\.block_count'"):
        read_gguf(write(tmp_path / "a.gguf", "llama", values))
    with pytest.raises(UnsupportedArchitectureError, match="'gemma3'"):
        read_gguf(write(tmp_path / "b.gguf", "gemma3", PLAIN))

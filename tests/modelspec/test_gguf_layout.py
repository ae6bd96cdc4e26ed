from __future__ import annotations

import numpy as np
import pytest

from outdraft.modelspec.gguf_layout import gguf_name, hf_name, interleave_rows


def test_names_no_family_uses_are_left_out() -> None:
    assert hf_name("blk.12.attn_q_norm.weight") == "model.layers.12.self_attn.q_norm.weight"
    assert hf_name("rope_freqs.weight") == "rope_freqs.weight"
    assert hf_name("blk.0.ffn_gate_inp.weight") is None
    assert hf_name("v.patch_embd.weight") is None


@pytest.mark.parametrize(
    ("hf", "gguf"),
    [
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("lm_head.weight", "output.weight"),
        ("model.layers.12.mlp.gate_proj.weight", "blk.12.ffn_gate.weight"),
        ("model.layers.3.self_attn.q_proj.bias", "blk.3.attn_q.bias"),
        ("model.layers.0.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"),
    ],
)
def test_names_go_both_ways(hf: str, gguf: str) -> None:
    assert gguf_name(hf) == gguf
    assert hf_name(gguf) == hf


def test_only_rows_of_q_and_k_are_interleaved_within_each_head() -> None:
    rows = np.arange(2 * 6)  # two heads of six
    pairs = [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]
    assert interleave_rows("model.layers.0.self_attn.q_proj.bias", rows, 2, 1).tolist() == pairs
    assert interleave_rows("model.layers.0.self_attn.k_proj.bias", rows, 1, 2).tolist() == pairs
    assert interleave_rows("model.layers.0.self_attn.v_proj.bias", rows, 2, 2) is rows

"""Estimates: near what engines have logged, and growing with what makes them grow."""

from __future__ import annotations

import pytest

from outdraft.plan.models import TABLE
from outdraft.plan.reserve import activation_bytes, graph_bytes, logit_bytes, num_captured_sizes

LLAMA_8B = TABLE["llama-3.1-8b"].spec


def test_activations_of_eight_billion() -> None:
    """A vLLM with its defaults on an 80 GB card has logged 1.26 GiB."""
    found = activation_bytes(LLAMA_8B, num_tokens=8192, num_rows=256)
    assert found == pytest.approx(1.26 * 2**30, rel=0.15)
    assert activation_bytes(LLAMA_8B, num_tokens=8192, num_rows=256, ranks=2) < found
    assert activation_bytes(LLAMA_8B, num_tokens=8192, num_rows=6 * 256) > found


def test_rows_cannot_outnumber_tokens() -> None:
    few = activation_bytes(LLAMA_8B, num_tokens=100, num_rows=100)
    assert activation_bytes(LLAMA_8B, num_tokens=100, num_rows=10_000) == few


def test_a_mixture_is_as_wide_as_the_experts_a_token_is_sent_to() -> None:
    mixture = TABLE["qwen3-30b-a3b"].spec
    tokens = 1000 * 2
    width = 8 * (3 * 768 + 2048) + 4 * 2048
    assert activation_bytes(mixture, num_tokens=1000, num_rows=0) == tokens * width


def test_logits() -> None:
    assert logit_bytes(LLAMA_8B, 256 * 5) == 256 * 5 * 128_256 * 4


@pytest.mark.parametrize(
    ("seqs", "k", "count"), [(1, 0, 2), (4, 0, 4), (64, 0, 19), (256, 0, 51), (256, 5, 51)]
)
def test_captured_sizes(seqs: int, k: int, count: int) -> None:
    assert num_captured_sizes(seqs, k) == count


def test_graphs() -> None:
    found = graph_bytes(LLAMA_8B, max_num_seqs=256, k=0)
    assert found == pytest.approx(0.5 * 2**30, rel=0.25), "as logged"

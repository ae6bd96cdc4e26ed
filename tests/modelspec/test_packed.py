"""Matrices in blocks: small, near what they were, and of the shape they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.modelspec.packed import (
    TYPES,
    can_pack,
    pack,
    packed_type,
    plain_name,
    plain_shape,
    unpack,
)

BITS = {"q8_0": 8, "q4_0": 4}


@given(st.sampled_from(TYPES), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_near_what_was_packed(kind: str, rows: int, blocks: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).normal(size=(rows, 32 * blocks)).astype(np.float32)
    packed = pack(matrix, kind)
    assert packed.dtype == np.uint8
    assert plain_shape(f"x.{kind}", packed.shape) == matrix.shape
    step = np.abs(matrix).max() / 2 ** (BITS[kind] - 1)
    assert np.abs(unpack(packed, kind) - matrix).max() <= 1.01 * step


def test_names() -> None:
    assert plain_name("lm_head.weight.q4_0") == "lm_head.weight"
    assert plain_name("lm_head.weight") == "lm_head.weight"
    assert packed_type("lm_head.weight") is None


@pytest.mark.parametrize(
    ("name", "shape"), [("x.weight", (3, 18)), ("x.q4_0", (3, 19)), ("x.q4_0", (18,))]
)
def test_what_is_no_block_keeps_its_shape(name: str, shape: tuple[int, ...]) -> None:
    assert plain_shape(name, shape) == shape


def test_what_can_be_packed() -> None:
    assert can_pack((5, 64))
    assert not can_pack((5, 60))
    assert not can_pack((64,))

"""Rows are copied and joined as they are, of any type."""

from __future__ import annotations

import pytest
import torch

from outdraft.engine.rows import copy_rows, join_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_the_same_in_new_memory(dtype: torch.dtype) -> None:
    whole = torch.randn(40, 1728).to(dtype)
    copied = copy_rows(whole[3:30])
    assert copied.equal(whole[3:30])
    assert copied.dtype is dtype
    assert copied.untyped_storage().nbytes() < whole.untyped_storage().nbytes()
    joined = join_rows([whole[:1], whole[1:7], whole[7:]])
    assert joined.equal(whole)
    assert joined.dtype is dtype


def test_a_single_part_is_not_copied() -> None:
    part = torch.randn(2, 3)
    assert join_rows([part]) is part

from __future__ import annotations

import os
import sys

import pytest

from outdraft.tune.memory import available_bytes, resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_this_process_and_this_machine() -> None:
    free = available_bytes()
    assert free is not None
    assert free > 1 << 20
    own = resident_bytes([os.getpid()])
    assert 1 << 20 < own < 1 << 36
    assert resident_bytes([os.getpid(), 2**22 + 1]) >= own // 2
    assert resident_bytes([]) == 0

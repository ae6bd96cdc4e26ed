from __future__ import annotations

import pytest

from outdraft.workload.running import running_band


@pytest.mark.parametrize(
    ("running", "band"),
    [(0, "1"), (0.4, "1"), (1, "1"), (1.4, "1"), (2, "2"), (2.6, "3-4"), (3, "3-4"), (4, "3-4"),
     (5, "5-8"), (8, "5-8"), (9, "9-16"), (16, "9-16"), (17, "17-32"), (1000, "513-1024")],
)  # fmt: skip
def test_bands(running: float, band: str) -> None:
    assert running_band(running) == band

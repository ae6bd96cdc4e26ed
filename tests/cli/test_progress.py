"""Lines of a distillation where there is no terminal."""

from __future__ import annotations

import pytest

from outdraft.cli import progress
from outdraft.cli.progress import show_stages


def test_a_stage_that_stands_at_its_end_promises_no_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "data 100 %, 0 s left", for minutes."""
    monkeypatch.setattr(progress, "_LINE_S", 0.0)
    with show_stages(quiet=True) as on_progress:
        for share in (0.0, 0.5, 1.0, 1.0):
            on_progress("data", share, "shard 0")
    first, half, *ends = capsys.readouterr().err.splitlines()
    assert first == "data 0%: shard 0"
    assert half == "data 50%, 0 s left: shard 0"
    assert ends == ["data 100%: shard 0"] * 2

"""Lines of a distillation where there is no terminal."""

from __future__ import annotations

import pytest

from outdraft.cli.progress import show_stages


def test_a_stage_that_stands_at_its_end_promises_no_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "data 100 %, 0 s left", for minutes."""
    times = iter([100.0, 120.0, 140.0, 160.0])
    monkeypatch.setattr("outdraft.cli.progress.time.monotonic", lambda: next(times))
    with show_stages(quiet=True) as on_progress:
        for share in (0.3, 0.5, 1.0, 1.0):
            on_progress("data", share, "shard 0")
    assert capsys.readouterr().err.splitlines() == [
        "data 30%: shard 0",
        "data 50%, 20 s left: shard 0",
        "data 100%: shard 0",
        "data 100%: shard 0",
    ]

"""Prometheus' own checker, where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def find_promtool() -> str | None:
    """The path in $OUTDRAFT_PROMTOOL, or the one on the path (Debian: `apt install prometheus`)."""
    return os.environ.get("OUTDRAFT_PROMTOOL") or shutil.which("promtool")


needs_promtool = pytest.mark.skipif(
    find_promtool() is None,
    reason="no promtool: set $OUTDRAFT_PROMTOOL or install one (Debian: apt install prometheus)",
)


def promtool(*words: str, text: str = "") -> str:
    """What it says; fails where it finds fault."""
    done = subprocess.run(
        [str(find_promtool()), *words], input=text, capture_output=True, text=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr

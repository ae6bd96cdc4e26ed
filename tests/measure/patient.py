"""A client whose own lateness does not count.

Whether a client was late is judged in `tests/loadgen/test_quality.py`. Where something else is
asked, a machine with other work to do must not make the run invalid.
"""

from __future__ import annotations

import pytest

from outdraft.loadgen import quality


def be_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "MAX_LAG_NS", 10**10)
    monkeypatch.setattr(quality, "MAX_STALLED_SHARE", 1.0)

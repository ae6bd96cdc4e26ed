"""Time budgets, and telling how far a stage is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from outdraft.errors import OptionError

# How far a stage is, 0 to 1, and a few words about it.
Tell = Callable[[str, float, str], None]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def silent(stage: str, share: float, words: str) -> None:
    """Tells nobody."""


def parse_budget(text: str) -> float:
    """`90s`, `8m`, `1.5h` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", text.strip())
    if found is None or float(found[1]) <= 0:
        raise OptionError(f"a budget is a time such as 90s, 8m or 1.5h, got {text!r}")
    return float(found[1]) * _UNITS[found[2]]


class Stopwatch:
    """Seconds since it was made, and those of earlier goes."""

    def __init__(self, before: float = 0.0) -> None:
        self._started = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

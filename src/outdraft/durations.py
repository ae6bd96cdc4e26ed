"""Durations as people write them: 90s, 10m, 1.5h, 200ms."""

import re

from outdraft.errors import OptionError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str, *, option: str, unit: str = "s") -> float:
    """Seconds. A plain number is in `unit`; `option` is named in the error message."""
    matched = re.fullmatch(r"([0-9.]+(?:e[+-]?[0-9]+)?)(ms|s|m|h|)", text.strip())
    try:
        seconds = float(matched[1]) * _SECONDS[matched[2] or unit] if matched else 0.0
    except ValueError:  # several points
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"{option} {text!r} is not a duration; write e.g. 90s, 10m or 1.5h")
    return seconds

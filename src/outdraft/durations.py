"""Durations as people write them: 90s, 10m, 6m30s, 1.5h, 200ms."""

import re

from outdraft.errors import OptionError

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_NUMBER = r"[0-9.]+(?:e[+-]?[0-9]+)?"
_PART = rf"({_NUMBER})(ms|s|m|h)"


def parse_duration(text: str, *, option: str, unit: str = "s") -> float:
    """Seconds. A plain number is in `unit`; `option` is named in the error message."""
    written = text.strip()
    if re.fullmatch(_NUMBER, written):
        written += unit
    try:
        parts = re.findall(_PART, written) if re.fullmatch(f"(?:{_PART})+", written) else []
        seconds = sum(float(number) * _SECONDS[each] for number, each in parts)
    except ValueError:  # several points
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise OptionError(f"{option} {text!r} is not a duration; write e.g. 90s, 10m or 1.5h")
    return seconds


def format_duration(seconds: float) -> str:
    """To the second, as `parse_duration` reads it: 45s, 6m, 6m30s, 1h5m."""
    minutes, rest = divmod(max(round(seconds), 0), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest if not hours else 0, "s"))
    return "".join(f"{value}{unit}" for value, unit in parts if value) or "0s"

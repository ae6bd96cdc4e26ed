"""When requests are due, as offsets in nanoseconds: from a rate, or from a trace.

A closed loop has no offsets: it sends the next request when one is answered. A trace is a JSON or
CSV file whose entries each have a timestamp: seconds (from any zero), or a date and time. Entries
that also hold prompts, in one of the layouts of `files`, are sent with them.
"""

import csv
import math
import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path

from outdraft.errors import OptionError
from outdraft.workload.files import Entries, parse_prompts, read_entries, read_text
from outdraft.workload.layouts import Entry
from outdraft.workload.prompt import Prompt

_NS = 1e9
_KEYS = ("timestamp", "ts", "time", "created", "created_at", "arrival_time", "arrived_at")


def poisson(rate: float, count: int, seed: int) -> list[int]:
    return gamma(rate, count, seed, burstiness=1.0)


def gamma(rate: float, count: int, seed: int, *, burstiness: float) -> list[int]:
    """Gaps from a gamma distribution of shape `burstiness`: 1 is Poisson, less is burstier.

    This is vLLM's definition; the mean rate does not depend on it.
    """
    _check_rate(rate)
    if not burstiness > 0:
        raise OptionError(f"burstiness must be greater than 0, got {burstiness:g}")
    draw = random.Random(seed)
    gaps = [draw.gammavariate(burstiness, 1 / (rate * burstiness)) for _ in range(count)]
    return [round(at * _NS) for at in accumulate(gaps)]


def ramp(first_rate: float, last_rate: float, count: int) -> list[int]:
    """The rate changes linearly from the first request to the last; equal rates: evenly apart."""
    _check_rate(first_rate)
    _check_rate(last_rate)
    steps = max(count - 1, 1)
    rates = [first_rate + (last_rate - first_rate) * index / steps for index in range(1, count)]
    ends = accumulate((1 / rate for rate in rates), initial=0.0)
    return [round(at * _NS) for at in ends][:count]


def replay(seconds: Sequence[float], speed: float = 1.0) -> list[int]:
    """The timestamps of a trace, from its first on; `speed` 2 plays it twice as fast."""
    _check_rate(speed)
    start = min(seconds, default=0.0)
    return sorted(round((at - start) / speed * _NS) for at in seconds)


def _check_rate(rate: float) -> None:
    if not 0 < rate < math.inf:
        raise OptionError(f"a rate must be greater than 0, got {rate:g}")


def read_trace(
    path: Path,
    *,
    speed: float = 1.0,
    at_most: int | None = None,
    notes: list[str] | None = None,
) -> tuple[list[int], list[Prompt] | None]:
    """Offsets of the first `at_most` requests, and their prompts; None: the file has times only."""
    is_csv = path.suffix == ".csv"
    rows = csv.DictReader(read_text(path).splitlines()) if is_csv else ()
    entries: Entries = (
        read_entries(path)
        if not is_csv
        else [(f"line {number}", row) for number, row in enumerate(rows, 2)]
    )
    if not entries:
        raise OptionError(f"{path} has no entries; give a trace with at least one request")
    times = [_seconds(entry, f"{path}, {place}") for place, entry in entries]
    order = sorted(range(len(times)), key=times.__getitem__)[:at_most]
    offsets_ns = replay([times[place] for place in order], speed)
    prompts = None if is_csv else parse_prompts(entries, path, notes)
    return offsets_ns, None if prompts is None else [prompts[place] for place in order]


def _seconds(entry: Entry, where: str) -> float:
    values = {str(key).strip().lower(): value for key, value in entry.items()}
    value = next((values[key] for key in _KEYS if values.get(key) not in (None, "")), None)
    if value is None:
        raise OptionError(f"{where}: no timestamp; one of {', '.join(_KEYS)} is needed")
    seconds = math.nan
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        with suppress(ValueError):
            when = datetime.fromisoformat(str(value))
            seconds = (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    if not math.isfinite(seconds):
        raise OptionError(f"{where}: {value!r} is no time; write seconds or ISO 8601")
    return seconds

"""How numbers are written in a report. A ratio always comes with its n."""

import math
from typing import TypeGuard

from outdraft.stats.ratios import Ratio

UNKNOWN = "–"
_NEARLY_ALWAYS = 0.95  # of the steps


def objective_name(objective: str) -> str:
    return "TPOT" if objective == "tpot" else objective


def times(value: float | None) -> str:
    """A speedup."""
    return f"{value:.2f}×" if is_finite(value) else UNKNOWN


def interval(ratio: Ratio) -> str:
    """The confidence interval; fewer than five blocks give none."""
    if ratio.low is None or ratio.high is None:
        return "no interval"
    return f"[{ratio.low:.2f}, {ratio.high:.2f}]"


def ratio_cells(ratio: Ratio | None) -> tuple[str, str, str]:
    """Speedup, interval and pairs, each in a cell of its own."""
    if ratio is None:
        return UNKNOWN, UNKNOWN, UNKNOWN
    return times(ratio.estimate), interval(ratio), count_of(ratio.num_pairs)


def pairs(ratio: Ratio) -> str:
    return f"{count_of(ratio.num_pairs)} in {ratio.blocks_text}"


def count_of(count: int) -> str:
    return f"n={count:,}"


def counted(count: int | None) -> str:
    """A count in a cell of its own."""
    return UNKNOWN if count is None else f"{count:,}"


def share(value: float | None) -> str:
    return f"{value:.2f}" if is_finite(value) else UNKNOWN


def percent(value: float | None) -> str:
    if not is_finite(value):
        return UNKNOWN
    # Shares that are almost 0 or almost 1 must not be rounded to 0 % or 100 %.
    if 0 < value < 0.001 or 0.99 < value < 1:
        shown = f"{100 * value:.1g}" if value < 0.5 else f"{math.floor(1000 * value) / 10:.1f}"
    else:
        shown = f"{100 * value:.{1 if 0 < abs(value) < 0.0995 else 0}f}"
    return f"{shown}\N{NO-BREAK SPACE}%"


def drafted_text(share_drafted: float | None) -> str:
    """How often there is a draft at all, where that is not nearly always: an acceptance rate is of
    the tokens that were drafted, and says nothing of the steps without."""
    if not is_finite(share_drafted) or share_drafted >= _NEARLY_ALWAYS:
        return ""
    return f"drafts in {percent(share_drafted)} of steps".replace("\N{NO-BREAK SPACE}", " ")


def acceptance_text(rate: float, share_drafted: float | None) -> str:
    """In plain text, e.g. "0.71, drafts in 23 % of steps"."""
    return ", ".join(filter(None, (f"{rate:.2f}", drafted_text(share_drafted))))


def acceptance_cell(rate: float, share_drafted: float | None) -> str:
    """The same for a narrow column, e.g. "0.71 in 23 %"."""
    share = percent(share_drafted).replace("\N{NO-BREAK SPACE}", " ")
    return f"{rate:.2f}{f' in {share}' if drafted_text(share_drafted) else ''}"


def milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def rate(value: float | None) -> str:
    """Something per second."""
    if not is_finite(value):
        return UNKNOWN
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def size(num_bytes: float) -> str:
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes / 1024:.3g} KiB"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def plain(value: object) -> str:
    """Any value of the settings, of the environment or of a check."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, list | tuple):
        return ", ".join(plain(each) for each in value) or "none"
    return str(value)


def is_finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)

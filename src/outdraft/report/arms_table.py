"""The arms of a load after a run as plain text, in the room that a terminal has. Pure."""

from collections.abc import Sequence

from outdraft.report.numbers import drafted_text
from outdraft.text_table import align_columns, wrap_lines
from outdraft.tune.arm import short_names
from outdraft.tune.results import ArmResult
from outdraft.tune.wording import speedup_text

_HEADS = ("", "predicted", "measured over off", "n", "acceptance", "tokens/s", "")
_INDENT = " " * 4
# The first that fits. With drafts' names; with what is said of an arm in its row, else below it;
# with a column for predictions, else in that of measurements.
_LAYOUTS = (
    (True, True, True),
    (False, True, True),
    (False, False, True),
    (False, False, False),
)


def arms_table(arms: Sequence[ArmResult], recommended: str | None, width: int | None = None) -> str:
    """`recommended`: the name of the arm with a star. `width`: None where lines may be long."""
    for layout in _LAYOUTS:
        lines = _lines(arms, recommended, *layout)
        if width is None or max(map(len, lines)) <= width:
            break
    is_below = width is not None and not layout[1]
    for at, arm in reversed(list(enumerate(arms, 1))):
        if is_below and (about := _about(arm)):
            lines.insert(at + 1, wrap_lines(f"{_INDENT}{about}", width, _INDENT))
    return "\n".join(lines)


def _lines(
    arms: Sequence[ArmResult],
    recommended: str | None,
    has_drafts: bool,
    has_about: bool,
    has_predicted: bool,
) -> list[str]:
    short = {} if has_drafts else short_names([arm.speculation for arm in arms])
    rows = []
    for arm in arms:
        state = f"* {arm.fate}" if arm.name == recommended else arm.fate
        about = _about(arm) if has_about else ""
        predicted = "" if arm.predicted is None else f"{arm.predicted:.2f}x"
        measured = "" if arm.measured is None else speedup_text(arm.measured)
        if not has_predicted and not measured and predicted:
            measured = f"≈ {predicted}"
        rows.append((
            short.get(arm.name, arm.name),
            *([predicted] if has_predicted else []),
            measured,
            str(arm.num_requests) if arm.num_requests else "",
            "" if arm.acceptance_rate is None else f"{arm.acceptance_rate:.2f}",
            "" if arm.tokens_per_s is None else f"{arm.tokens_per_s:.1f}",
            f"{state}: {about}" if about else state,
        ))  # fmt: skip
    wide = max((len(row[-1]) for row in rows), default=0)  # the last column is on the left
    heads = _HEADS if has_predicted else ("", "speedup over off", *_HEADS[3:])
    table = [heads, *((*cells, state.ljust(wide)) for *cells, state in rows)]
    return align_columns(table).splitlines()


def _about(arm: ArmResult) -> str:
    return "; ".join(filter(None, (arm.reason, drafted_text(arm.share_drafted))))

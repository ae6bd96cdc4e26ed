"""Plain-text tables, to be printed or pasted."""

from collections.abc import Sequence


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(len(row[at]) for row in rows if at < len(row)) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    )

"""Plain-text tables, to be printed or pasted."""

import textwrap
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


def wrap_lines(text: str, width: int | None, indent: str = "  ") -> str:
    """Lines that are longer end between two words and go on indented. None: as they are."""
    if width is None:
        return text
    wrapper = textwrap.TextWrapper(
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    lines = text.splitlines()
    return "\n".join(each if len(each) <= width else wrapper.fill(each) for each in lines)

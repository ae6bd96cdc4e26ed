"""Records of a measurement while they come: shown, and kept in a journal."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from rich.console import Console

from outdraft.errors import OutdraftError
from outdraft.loadgen.load import Sink
from outdraft.records import Record, RecordJournal
from outdraft.report.live import live


@contextmanager
def show_and_journal(total: int | None, title: str, out: str | None) -> Iterator[Sink]:
    """Shows each record and, with `out`, adds it to a journal beside that file.

    Write `out` inside: it then replaces the journal, which an interrupted run leaves."""
    if out is not None:
        _set_aside(Path(f"{out}.journal"))
    with live(total, title, Console(file=sys.stderr)) as show:
        if out is None:
            yield show
            return
        with RecordJournal(Path(f"{out}.journal")) as journal:

            def sink(record: Record) -> None:
                show(record)
                journal.add(record)

            yield sink
        if Path(out).exists():
            journal.path.unlink()


def _set_aside(journal: Path) -> None:
    """Renames the journal of an earlier run, so that its records are kept and not mixed in."""
    if not journal.exists():
        return
    names = (journal.with_name(f"{journal.name}.{number}") for number in count(1))
    aside = next(each for each in names if not each.exists())
    try:
        journal.rename(aside)
    except OSError as error:
        raise OutdraftError(f"cannot rename {journal}: {error.strerror}") from error
    print(f"note: the records of an interrupted run are in {aside}", file=sys.stderr)

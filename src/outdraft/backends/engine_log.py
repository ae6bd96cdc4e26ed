"""An engine's log: its last line, and the line that says why the engine ended."""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

_TAIL_BYTES = 256 << 10
_MAX_QUOTED = 300

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_EXCEPTION = re.compile(r"(?:^|[\s\]])(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Refused): \S")
_FILE = Path(__file__).with_name("log_patterns.toml")
_PATTERNS = {
    name: re.compile("|".join(expressions), re.IGNORECASE)
    for name, expressions in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}


def tail(log: Path) -> list[str]:
    """The last lines that are not empty, without colours."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    # A progress bar writes over its own line: what it showed last is what counts.
    lines = (_ANSI.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.split("\n"))
    return [line.strip() for line in lines if line.strip()]


def last_line(log: Path) -> str:
    lines = tail(log)
    return shortened(lines[-1]) if lines else ""


def reason(lines: Sequence[str]) -> str | None:
    """The line that explains the end best: memory first, then an exception, then an error."""
    if line := out_of_memory(lines):
        return line
    telling = [line for line in lines if not _matches(line, "consequence")]
    for line in reversed(telling):
        if _EXCEPTION.search(line):
            return shortened(line)
    # The first of the errors at the end is the cause, those after it are its consequences. What
    # an engine complained of before it was ready did not end it.
    ready = (i + 1 for i, line in enumerate(telling) if _matches(line, "ready"))
    errors = (line for line in telling[max(ready, default=0) :][-40:] if _matches(line, "error"))
    cause = next(errors, lines[-1] if lines else None)
    return None if cause is None else shortened(cause)


def out_of_memory(lines: Sequence[str]) -> str | None:
    line = next((line for line in reversed(lines) if _matches(line, "out_of_memory")), None)
    return None if line is None else shortened(line)


def ended_itself(lines: Sequence[str]) -> bool:
    return any(_matches(line, "ended_itself") for line in lines[-3:])


def is_address_taken(lines: Sequence[str]) -> bool:
    return any(_matches(line, "address_taken") for line in lines[-40:])


def shortened(line: str) -> str:
    return line if len(line) <= _MAX_QUOTED else f"{line[: _MAX_QUOTED - 1]}…"


def _matches(line: str, kind: str) -> bool:
    return _PATTERNS[kind].search(line) is not None

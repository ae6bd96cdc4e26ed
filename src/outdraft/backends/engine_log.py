"""An engine's log: its last line, and the line that says why the engine ended."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_TAIL_BYTES = 256 << 10
_MAX_QUOTED = 300

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_OUT_OF_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError|out of memory|failed to allocate|unable to allocate"
    r"|KV cache.{0,80}larger than|No available memory for the cache blocks|std::bad_alloc"
    r"|Cannot allocate memory|MemoryError|^Killed|Not enough memory"
    r"|DefaultCPUAllocator: can't alloc",
    re.IGNORECASE,
)
_EXCEPTION = re.compile(r"(?:^|[\s\]])(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Refused): \S")
_ERROR = re.compile(
    r"\berror\b|\bfatal\b|\bfailed\b|\bcouldn't\b|\bcannot\b|\binvalid\b|\babort|\bassert|\bE srv\b"
    r"|no such file|not found|illegal instruction|segmentation fault|unrecognized arguments"
    r"|\bcrashed\b|^outdraft: ",
    re.IGNORECASE,
)
# Lines that only say that something went wrong before.
_EMPTY_WORDS = re.compile(
    r"exiting due to|see root cause|engine core initialization failed|enginecore failed to start"
    r"|failed to init server|cleaning up|traceback|^usage:|run with -h|error_count|0 errors"
    r"|unable to load model|failed to load model,|failed to create context with model"
    r"|kill_process_tree called|received sigquit|sigquit received|ignore import error"
    r"|security: no API key|child process died|^outdraft: stopped$| at http://\S+$",
    re.IGNORECASE,
)
# SGLang's main process, when one of its others has failed: it ends all of them by signal 9.
_ENDED_ITSELF = re.compile(r"kill_process_tree called: .*include_parent=True")
_READY = re.compile(
    r"ready to roll|application startup complete|server is listening|model loaded", re.IGNORECASE
)
_ADDRESS_TAKEN = re.compile(
    r"address already in use|couldn't bind|port \d+ is (?:already )?(?:taken|in use)", re.IGNORECASE
)


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
    """The line that says most about an end: memory first, then what was raised, then errors."""
    if found := out_of_memory(lines):
        return found
    telling = [line for line in lines if not _EMPTY_WORDS.search(line)]
    for line in reversed(telling):
        if _EXCEPTION.search(line):
            return shortened(line)
    # The first of the errors at the end is the cause, those behind it are its consequences. What
    # an engine complained of before it was ready did not end it.
    since = max((i + 1 for i, line in enumerate(telling) if _READY.search(line)), default=0)
    errors = [line for line in telling[since:][-40:] if _ERROR.search(line)]
    if errors:
        return shortened(errors[0])
    return shortened(lines[-1]) if lines else None


def out_of_memory(lines: Sequence[str]) -> str | None:
    for line in reversed(lines):
        if _OUT_OF_MEMORY.search(line):
            return shortened(line)
    return None


def ended_itself(lines: Sequence[str]) -> bool:
    return any(_ENDED_ITSELF.search(line) for line in lines[-3:])


def is_address_taken(lines: Sequence[str]) -> bool:
    return any(_ADDRESS_TAKEN.search(line) for line in lines[-40:])


def shortened(line: str) -> str:
    return line if len(line) <= _MAX_QUOTED else f"{line[: _MAX_QUOTED - 1]}…"

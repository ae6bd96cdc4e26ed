"""An engine's log: its last line, and the line that says why the engine ended.

Engines of several processes write to one log, each with tracebacks of its own, and the process that
we started only says that another one failed. The cause stands further up, where the first process
failed.
"""

import re
import signal
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_TAIL_BYTES = 256 << 10
_MOST_BYTES = 4 << 20  # where the end of a log holds no cause, so much of it is read
_LAST_BYTES = 16 << 10  # for its last line
_MAX_QUOTED = 300

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
# `(EngineCore_DP0 pid=7) ERROR 11-15 09:00:00 [core.py:900] `, as vLLM writes before each line
_PROCESS = re.compile(r"\((?P<process>[A-Z]\w* pid=\d+)\)(?: |$)")
_LEVEL = re.compile(r"(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")
_SHORT_LEVEL = re.compile(r"\d+\.\d\d\.\d{3}\.\d{3} (?P<level>[DIWE]) ")  # llama.cpp's
_NO_ERROR = ("DEBUG", "INFO", "WARNING", "D", "I", "W")
_NAME = r"(?:[A-Za-z_]\w*\.)*(?:[A-Z]\w*(?:Error|Refused)|(?:[A-Z]\w*)?Exception)"
_EXCEPTION = re.compile(rf"(?:^|[\s\]]){_NAME}: \S")
_WORDLESS = re.compile(rf"^{_NAME}:?$")  # an exception without a message
_SEVERAL_LINES = re.compile(r"\d+ validation errors? for \S+$")
_FAILED_PROCESS = re.compile(r"Failed core proc\(s\): .*?'(?P<name>\w+)': -(?P<signal>\d+)")
_FILE = Path(__file__).with_name("log_patterns.toml")
_PATTERNS = {
    name: re.compile("|".join(expressions), re.IGNORECASE)
    for name, expressions in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the log, less what stands before each line of a process."""

    text: str
    process: str = ""  # that wrote it, where it says so
    level: str = ""

    def matches(self, kind: str) -> bool:
        return _matches(self.text, kind)


def tail(log: Path, num_bytes: int = _TAIL_BYTES) -> list[str]:
    """The last lines that are not empty, without colours."""
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - num_bytes))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    # A progress bar writes over its own line: what it showed last is what counts.
    lines = (_ANSI.sub("", line.rstrip("\r").rpartition("\r")[2]) for line in text.split("\n"))
    return [line.strip() for line in lines if line.strip()]


def ending(log: Path) -> list[str]:
    """The last lines: as many as it takes to see the cause, where the log tells it."""
    lines = tail(log)
    if out_of_memory(lines) or _exception(_parsed(lines)):
        return lines
    longer = tail(log, _MOST_BYTES)
    is_told = out_of_memory(longer) or _exception(_parsed(longer))
    return longer if is_told else lines


def num_bytes(log: Path) -> int:
    try:
        return log.stat().st_size
    except OSError:
        return 0


def last_line(log: Path) -> str:
    lines = tail(log, _LAST_BYTES)
    return shortened(lines[-1]) if lines else ""


def reason(lines: Sequence[str]) -> str | None:
    """What explains the end best: memory first, then an exception, then an error."""
    parsed = _parsed(lines)
    told = out_of_memory(lines) or _exception(parsed) or _signal(parsed)
    if told is not None:
        return shortened(told)
    # The first of the errors at the end is the cause, those after it are its consequences. What
    # an engine complained of before it was ready did not end it.
    telling = [line for line in parsed if not line.matches("consequence")]
    ready = (i + 1 for i, line in enumerate(telling) if line.matches("ready"))
    errors = (
        line.text
        for line in telling[max(ready, default=0) :][-40:]
        if line.level not in _NO_ERROR and line.matches("error")
    )
    cause = next(errors, lines[-1] if lines else None)
    return None if cause is None else shortened(cause)


def out_of_memory(lines: Sequence[str]) -> str | None:
    for line in reversed(_parsed(lines)):
        # Engines also give advice for the case that memory runs out.
        if line.level not in _NO_ERROR and line.matches("out_of_memory"):
            return shortened(line.text)
    return None


def ended_itself(lines: Sequence[str]) -> bool:
    return any(_matches(line, "ended_itself") for line in lines[-3:])


def is_gpu_crowded(lines: Sequence[str]) -> bool:
    return any(_matches(line, "gpu_crowded") for line in lines)


def is_address_taken(lines: Sequence[str]) -> bool:
    return any(_matches(line, "address_taken") for line in lines[-40:])


def shortened(line: str) -> str:
    return line if len(line) <= _MAX_QUOTED else f"{line[: _MAX_QUOTED - 1]}…"


def signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def _matches(line: str, kind: str) -> bool:
    return _PATTERNS[kind].search(line) is not None


def _parsed(lines: Sequence[str]) -> list[_Line]:
    return [parsed for line in lines for parsed in _parse(line)]


def _parse(line: str) -> Iterator[_Line]:
    """One, or several where a process wrote into the line of another."""
    if short := _SHORT_LEVEL.match(line):
        yield _Line(line, level=short["level"])
        return
    starts = [match.start() for match in _PROCESS.finditer(line)]
    for start, end in zip([0, *starts], [*starts, len(line)], strict=True):
        piece, process, level = line[start:end], "", ""
        if match := _PROCESS.match(piece):
            piece, process = piece[match.end() :], match["process"]
        if match := _LEVEL.match(piece):
            piece, level = piece[match.end() :], match["level"]
        if piece.strip():
            yield _Line(piece.strip(), process, level)


def _exception(lines: Sequence[_Line]) -> str | None:
    """The exception that the first failing process ended with; where no process says that it
    failed, the last one. Those that tell of the failure of another process are none."""
    for at, line in enumerate(lines):
        if line.matches("process_failed"):
            own = [each for each in lines[at:] if each.process == line.process]
            if line.process == "":  # one that does not name itself in the lines that follow
                own = list(lines[at:])
            if told := _told(_first_traceback(own)):
                return told
    return _told(lines)


def _first_traceback(lines: Sequence[_Line]) -> list[_Line]:
    """With those that were raised while the first exception was handled."""
    kept: list[_Line] = []
    is_linked = True
    for line in lines:
        if line.matches("linked"):
            is_linked = True
        elif line.matches("traceback"):
            if not is_linked:
                break
            is_linked = False
        kept.append(line)
    return kept


def _told(lines: Sequence[_Line]) -> str | None:
    """The last exception that is a cause, in one line."""
    for at in reversed(range(len(lines))):
        line = lines[at]
        has_words, is_wordless = _EXCEPTION.search(line.text), _WORDLESS.match(line.text)
        if not (has_words or is_wordless) or line.matches("consequence"):
            continue
        if has_words:
            after = lines[at + 1].text if at + 1 < len(lines) else ""
            is_told_below = after and _SEVERAL_LINES.search(line.text)
            return f"{line.text}: {after}" if is_told_below else line.text
        raised = lines[at - 1].text if at > 0 else ""
        return f"{line.text} ({raised})" if raised else line.text
    return None


def _signal(lines: Sequence[_Line]) -> str | None:
    """Where a process was ended from outside there is no exception."""
    for line in reversed(lines):
        if failed := _FAILED_PROCESS.search(line.text):
            name = signal_name(int(failed["signal"]))
            by = ", by the system, out of memory, or by somebody" if name == "SIGKILL" else ""
            return f"its process {failed['name']} was ended by {name}{by}"
    return None

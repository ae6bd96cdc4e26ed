"""A command's own --help and --version, and the options that they describe."""

import re
import subprocess
from collections.abc import Sequence
from functools import cache
from subprocess import CompletedProcess

from outdraft.errors import BackendError

_TIMEOUT_S = 180.0  # a cold file system, a heavy import
_HEAD = re.compile(
    r"^ {0,2}(-{1,2}[A-Za-z][\w-]*(?:[ \w<>\[\]{}|.,:=/-]*?, +-{1,2}[A-Za-z][\w-]*)*)"
)
_OPTION = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*")
_REMOVED = "argument has been removed"


def options_in(text: str) -> frozenset[str]:
    """Every option that a help text describes, but for those it says were removed."""
    options: set[str] = set()
    removed: set[str] = set()
    described: set[str] = set()  # by the entry that the line belongs to
    for line in text.splitlines():
        if head := _HEAD.match(line):
            described = set(_OPTION.findall(head[1]))
            options |= described
        if _REMOVED in line:
            removed |= described
    return frozenset(options - removed)


def choices_in(text: str, option: str) -> tuple[str, ...]:
    """The values that a help text lists after an option: `--x a,b`, `--x {a,b}`, `--x [a|b]`."""
    listed = rf"^[ \w,-]*{re.escape(option)} +[\[{{]?([\w-]+(?:[,|][\w-]+)+)"
    matched = re.search(listed, text, re.MULTILINE)
    return tuple(re.split(r"[,|]", matched[1])) if matched else ()


@cache
def help_of(command: tuple[str, ...], flag: str = "--help") -> str:
    """What `command flag` prints, standard output first. Asked once."""
    done = run_program([*command, flag])
    if done.returncode != 0:
        raise BackendError(f"{' '.join(command)} {flag} failed: {last_words(done)}")
    return done.stdout + done.stderr


def run_program(command: Sequence[str]) -> CompletedProcess[str]:
    """Runs a program to its end; BackendError where it cannot be started or does not end."""
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            cwd="/",  # a folder with the engine's name must not be taken for it
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BackendError(f"cannot run {' '.join(command)[:200]}: {why}") from error


def last_words(done: CompletedProcess[str]) -> str:
    """The last line on the standard error, where a program says what went wrong."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else f"code {done.returncode}, without a message"

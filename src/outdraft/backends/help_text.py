"""What a command's own --help and --version say: real options, not assumed ones."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import cache

from outdraft.errors import BackendError

_TIMEOUT_S = 120.0  # a cold file system, a heavy import
_HEAD = re.compile(
    r"^ {0,2}(-{1,2}[A-Za-z][\w-]*(?:[ \w<>\[\]{}|.,:=/-]*?, +-{1,2}[A-Za-z][\w-]*)*)"
)
_OPTION = re.compile(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*")
_REMOVED = "argument has been removed"


def options_in(text: str) -> frozenset[str]:
    """Every option that a help text describes, but for those it says were removed."""
    found: set[str] = set()
    removed: set[str] = set()
    here: set[str] = set()
    for line in text.splitlines():
        if head := _HEAD.match(line):
            here = set(_OPTION.findall(head[1]))
            found |= here
        if _REMOVED in line:
            removed |= here
    return frozenset(found - removed)


def choices_in(text: str, option: str) -> tuple[str, ...]:
    """The values that a help text lists behind an option: `--x a,b`, `--x {a,b}`, `--x [a|b]`."""
    listed = rf"^[ \w,-]*{re.escape(option)} +[\[{{]?([\w-]+(?:[,|][\w-]+)+)"
    found = re.search(listed, text, re.MULTILINE)
    return tuple(re.split(r"[,|]", found[1])) if found else ()


@cache
def said_by(command: tuple[str, ...], flag: str) -> str:
    """What `command flag` prints, standard output first. Asked once."""
    try:
        done = subprocess.run(
            [*command, flag],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BackendError(f"cannot run {' '.join(command)} {flag}: {why}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        why = lines[-1].strip() if lines else f"code {done.returncode}, and it said nothing"
        raise BackendError(f"{shown(command)} {flag} failed: {why}")
    return done.stdout + done.stderr


def shown(command: Sequence[str]) -> str:
    return " ".join(command)

"""A small process between us and an engine: when we end, however we end, so does the engine.

    python guard.py PARENT_PID STATUS_FD GRACE_S COMMAND [ARGUMENT …]

Run as a file with the standard library alone, so that it starts in milliseconds. Its standard input
comes from the parent: when that closes, or the parent is another one, everything below is ended
(SIGTERM, and GRACE_S seconds later SIGKILL). As a subreaper it inherits descendants whose own
parents have ended, so workers in sessions of their own are found too. What became of the engine is
written to STATUS_FD: `failed WHY` or `exit CODE` (negative: a signal).
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from glob import glob

_LAST_S = 3.0  # for what was killed to be gone
_LOOK_S = 0.5  # how often the parent is looked at
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_IS_LINUX = sys.platform == "linux"


def run_guard(parent: int, status_fd: int, grace_s: float, command: Sequence[str]) -> None:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    received: list[int] = []
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: received.append(number))
    for number in (signal.SIGCHLD, signal.SIGINT):  # the first wakes up, the second is not for us;
        signal.signal(number, lambda *_: None)  # handlers, unlike SIG_IGN, end with exec
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        engine = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            # should the guard itself be killed, the engine's first process goes with it
            preexec_fn=(lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)) if _IS_LINUX else None,
        )
    except OSError as error:
        _report(status_fd, f"failed {error.strerror or error}")
        return
    lifeline = sys.stdin.fileno()
    while not received and os.getppid() == parent:
        ready, _, _ = select.select([lifeline, woken], [], [], _LOOK_S)
        if woken in ready:
            os.read(woken, 1024)
            if _reap(engine.pid, status_fd):
                break
        if lifeline in ready and not os.read(lifeline, 1024):
            break
    _end_everything(engine.pid, status_fd, grace_s)


def _end_everything(engine: int, status_fd: int, grace_s: float) -> None:
    """SIGTERM for the engine's group and whatever else is left, then SIGKILL."""
    for number, seconds in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _LAST_S)):
        _signal(engine, number)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            _reap(engine, status_fd)
            if not _anything_left(engine):
                return
            if number == signal.SIGKILL:
                _signal(engine, number)  # what was started meanwhile
            time.sleep(0.05)


def _signal(engine: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(engine, number)
    for pid in descendants(os.getpid()):
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(pid) != engine:  # the group has had it
                os.kill(pid, number)


def _anything_left(engine: int) -> bool:
    if _IS_LINUX:
        return bool(descendants(os.getpid()))
    try:
        os.killpg(engine, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def descendants(root: int) -> list[int]:
    """Every process below `root`, by /proc; an empty list on systems without it."""
    children: dict[int, list[int]] = {}
    for path in glob("/proc/[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError), open(path, "rb") as file:  # ended meanwhile
            # "pid (name) state parent …": a name may hold anything, brackets too
            text = file.read()
            parent = int(text.rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(text.split()[0]))
    pids = [root]
    for pid in pids:  # the list grows meanwhile
        pids += children.get(pid, [])
    return pids[1:]


def _reap(engine: int, status_fd: int) -> bool:
    """Collect processes that have ended. Returns whether the engine itself was among them."""
    ended = False
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        if pid == engine:
            ended = True
            _report(status_fd, f"exit {os.waitstatus_to_exitcode(status)}")


def _report(status_fd: int, words: str) -> None:
    with suppress(OSError):  # nobody may read any more
        os.write(status_fd, f"{words}\n".encode())


def _prctl(option: int, value: int) -> None:
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    run_guard(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4:])
    os._exit(0)  # at once: the engine's Popen has nothing more to say

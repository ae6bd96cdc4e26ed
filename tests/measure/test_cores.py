"""Whether others use the cores: from numbers of the system, and once for real."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outdraft.measure.cores import (
    CoreTimes,
    CoreWatch,
    Window,
    busy_words,
    no_watch,
    read_core_times,
    window_between,
)

QUIET = Window(others=0.05, idle=0.2, stolen=0.0, num_cores=2)
BUSY = Window(others=0.9, idle=0.0, stolen=0.0, num_cores=2)


def test_what_others_used_is_what_is_left() -> None:
    before = CoreTimes(used=100.0, idle=50.0, stolen=1.0, own=80.0, num_cores=2)
    after = CoreTimes(used=101.8, idle=50.1, stolen=1.1, own=81.0, num_cores=2)
    window = window_between(before, after)
    assert window.others == pytest.approx(0.8)
    assert (window.idle, window.stolen) == (pytest.approx(0.1), pytest.approx(0.1))
    ended = CoreTimes(used=100.1, idle=51.9, stolen=1.0, own=80.3, num_cores=2)
    assert window_between(before, ended).others == 0.0, "ticks are coarse"


def test_the_worst_window_is_named() -> None:
    assert busy_words([(QUIET, 1.0), (QUIET, 1.0)]) == ""
    words = "another program is using the cores (0.9 of 2)"
    assert busy_words([(QUIET, 1.0), (BUSY, 1.0), (QUIET, 1.0)]) == words
    stolen = Window(others=0.0, idle=0.1, stolen=0.5, num_cores=2)
    assert busy_words([(stolen, 1.0)]) == "the host gave 25% of the cores to others"


def test_where_cores_are_idle_others_disturb_nobody() -> None:
    large = Window(others=10.0, idle=46.0, stolen=0.0, num_cores=64)
    assert busy_words([(large, 1.0)]) == ""


def test_a_short_rest_of_a_window_says_little() -> None:
    """The time of others counts, not its share of a moment."""
    rest = Window(others=0.1, idle=0.0, stolen=0.02, num_cores=2)
    assert busy_words([(rest, 0.06)]) == ""


def test_how_long_the_work_takes_does_not_matter() -> None:
    """A burst is seen in a long block as in a short one."""
    assert busy_words([(BUSY, 1.0)])
    assert busy_words([*[(QUIET, 1.0)] * 50, (BUSY, 1.0)]) == busy_words([(BUSY, 1.0)])


def test_the_system_is_read(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    cores = sorted(os.sched_getaffinity(0))
    lines = [f"cpu{each} {2 * tick} {tick} {tick} {5 * tick} 0 0 0 {tick} 0 0" for each in cores]
    (tmp_path / "stat").write_text("\n".join(["cpu  1 2 3", *lines, "intr 5"]))
    (tmp_path / "7").mkdir()
    fields = ["S", "1", *["0"] * 9, str(3 * tick), str(tick), "0"]
    (tmp_path / "7" / "stat").write_text(f"7 (a ) name) {' '.join(fields)}")
    n = len(cores)
    assert read_core_times((7, 8), tmp_path) == CoreTimes(4.0 * n, 5.0 * n, 1.0 * n, 4.0, n)
    assert read_core_times((7,), tmp_path / "none") is None


def test_without_anything_to_read_nothing_is_said() -> None:
    with no_watch() as watch:
        time.sleep(0.01)
    assert watch.words == ""


def test_windows_follow_the_clock() -> None:
    """Readings of a machine of which others take all from the second window on."""
    readings = iter(CoreTimes(float(at), 0.0, 0.0, float(min(at, 1)), 1) for at in range(99))
    with CoreWatch(lambda pids: next(readings), window_s=0.05) as watch:
        time.sleep(0.22)
    assert watch.words.startswith("another program is using the cores (")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_a_real_program_is_seen_and_our_own_work_is_not() -> None:
    """Our children are no others; a process that leaves us is one."""
    spin = "import time; end = time.monotonic() + 3\nwhile time.monotonic() < end: pass"
    ours = [subprocess.Popen([sys.executable, "-c", spin]) for _ in os.sched_getaffinity(0)]
    with CoreWatch() as watch:
        time.sleep(2.5)
    for each in ours:
        each.wait()
    if watch.words:
        pytest.skip(f"the machine is not idle: {watch.words}")
    leaving = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spin!r}])"
    for _ in os.sched_getaffinity(0):
        subprocess.run([sys.executable, "-c", leaving], check=True)
    with CoreWatch() as watch:
        time.sleep(2)
    assert watch.words.startswith("another program is using the cores")

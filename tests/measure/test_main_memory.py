"""Main memory as a machine, a container and a pod have it, in planted folders."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from outdraft.measure.main_memory import available_memory, resident_memory

GIB = 1 << 30


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path / "proc/meminfo", f"MemTotal: 9 kB\nMemAvailable: {60 * GIB // 1024} kB")
    return tmp_path


def v2_group(folder: Path, limit: object, used: int, files: int = 0) -> None:
    write(folder / "memory.max", limit)
    write(folder / "memory.current", used)
    write(folder / "memory.stat", f"anon 5\ninactive_file {files}\nactive_file {files}")


def test_without_groups_it_is_the_machine(root: Path) -> None:
    assert available_memory(root) == 60 * GIB
    assert available_memory(root / "elsewhere") is None


def test_a_container_has_what_its_group_leaves(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/")
    v2_group(root / "sys/fs/cgroup", 16 * GIB, 14 * GIB, files=3 * GIB)
    assert available_memory(root) == 8 * GIB, "files that were read are given back"
    v2_group(root / "sys/fs/cgroup", "max", 14 * GIB)
    assert available_memory(root) == 60 * GIB
    v2_group(root / "sys/fs/cgroup", 16 * GIB, 17 * GIB)
    assert available_memory(root) == 0


def test_the_tightest_group_around_this_process_counts(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/pods/one/engine")
    v2_group(root / "sys/fs/cgroup/pods/one/engine", "max", 2 * GIB)
    v2_group(root / "sys/fs/cgroup/pods/one", 10 * GIB, 3 * GIB)
    v2_group(root / "sys/fs/cgroup/pods", 40 * GIB, 35 * GIB)
    assert available_memory(root) == 5 * GIB


def test_groups_of_version_1(root: Path) -> None:
    write(root / "proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n")
    folder = root / "sys/fs/cgroup/memory"  # in a container its own group is mounted as the first
    write(folder / "memory.limit_in_bytes", 8 * GIB)
    write(folder / "memory.usage_in_bytes", 6 * GIB)
    write(folder / "memory.stat", f"inactive_file 7\ntotal_inactive_file {GIB}")
    assert available_memory(root) == 3 * GIB
    write(folder / "memory.limit_in_bytes", 9223372036854771712)
    assert available_memory(root) == 60 * GIB


def test_shared_pages_count_once(root: Path) -> None:
    write(root / "proc/7/smaps_rollup", "Rss: 900 kB\nPss: 500 kB\nPss_Anon: 400 kB")
    write(root / "proc/7/statm", "9999 9999 0")
    write(root / "proc/8/statm", "9999 3 0")
    page = os.sysconf("SC_PAGE_SIZE")
    assert resident_memory([7, 8, 9], root) == 500 * 1024 + 3 * page, "9 has ended"


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_this_process_and_this_machine() -> None:
    free = available_memory()
    assert free is not None
    assert free > 1 << 20
    own = resident_memory([os.getpid()])
    assert 1 << 20 < own < 1 << 36
    assert resident_memory([os.getpid(), 2**22 + 1]) >= own // 2
    assert resident_memory([]) == 0

"""`outdraft tune` with real llama.cpp: engines stay up or are visited, and kills lose nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outdraft.backends.llamacpp import installation as llamacpp_installation
from tests.engines.places import llama_server

pytestmark = pytest.mark.engines

FLAGS = (
    "--engine", "llamacpp", "--methods", "ngram", "--k", "2,4", "--concurrency", "1,2",
    "--max-tokens", "16", "--block", "4", "--threads", "1", "--max-model-len", "1024",
    "--budget", "40s",
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(llamacpp_installation.VARIABLE, str(llama_server()))
        yield


def tune(folder: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "outdraft", "tune", *FLAGS, *flags, "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def blocks_of(folder: Path) -> list[tuple[str, str, int, float]]:
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    blocks = [each["block"] for each in lines if "block" in each]
    return [(each["load"], each["arm"], each["block"], each["start_s"]) for each in blocks]


def engines_left(folder: Path) -> list[str]:
    """Command lines of engines whose log is in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.readlink(fd).startswith(str(folder)) for fd in entry.glob("fd/*")):
                found.append((entry / "cmdline").read_text())
        except OSError:
            continue
    return [each for each in found if "llama" in each]


def test_side_by_side_each_engine_is_started_once(tmp_path: Path) -> None:
    with tune(tmp_path / "out") as process:
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    blocks = blocks_of(tmp_path / "out")
    starts = Counter(arm for _, arm, _, start_s in blocks if start_s > 0.2)
    assert set(starts.values()) == {1}, starts
    assert {arm for _, arm, _, _ in blocks} >= {"off", "ngram k=4"}
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert all(load["verdict"] is not None for load in results["loads"]), said
    assert engines_left(tmp_path) == []


def test_in_visits_killed_at_five_moments(tmp_path: Path) -> None:
    folder, flags = tmp_path / "out", ("--keep-engines", "visits", "--concurrency", "1")
    for after_s in (2.0, 4.5, 6.0, 7.5, 9.0):
        with tune(folder, *flags) as process:
            try:
                process.communicate(timeout=after_s)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
    until = time.monotonic() + 15
    while engines_left(tmp_path) and time.monotonic() < until:
        time.sleep(0.2)  # their guards end them
    assert engines_left(tmp_path) == []
    with tune(folder, *flags) as process:
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    keys = [each[:3] for each in blocks_of(folder)]
    assert len(set(keys)) == len(keys), "nothing is measured twice"
    order = [arm for load, arm, _, _ in blocks_of(folder) if "final" in load]
    visits = [arm for at, arm in enumerate(order) if at == 0 or order[at - 1] != arm]
    assert len(visits) == 5, visits
    assert visits[::2] == ["off"] * 3
    assert visits[1] == visits[3] != "off"

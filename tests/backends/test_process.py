"""Engines that start, do not start, die, and are left alone by whoever started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from outdraft.backends.backend import Launch, Serving
from outdraft.backends.process import GRACE_S, EngineProcess, free_port, start
from outdraft.errors import BackendError, CrowdedGpuError
from outdraft.observe import RemoteServer
from outdraft.speculation import OFF
from outdraft.testing.backend_contract import is_alive, wait_for_death
from tests.backends.scripted import ScriptedEngine

PATIENCE_S = 30.0
GONE_S = 10.0  # promised: nothing is left so long after we were killed
SHORT_S = 0.5  # of grace, instead of the usual
NUM_PROCESSES = 4  # the engine and its three workers

# Starts an engine, says which processes it has, and waits to be killed.
PARENT = """
import json, sys, time
from pathlib import Path
from outdraft.backends.backend import Serving
from outdraft.backends.process import start
from outdraft.speculation import OFF
from tests.backends.scripted import ScriptedEngine

behaviour = ScriptedEngine("workers", "serve")
engine = start(behaviour, Serving("x"), OFF, log=Path(sys.argv[1]), grace_s=float(sys.argv[3]))
while len(engine.processes()) < int(sys.argv[2]):
    time.sleep(0.05)
print(json.dumps(engine.processes()), flush=True)
time.sleep(300)
"""


def started(log: Path, *behaviour: str, **options: Any) -> EngineProcess:
    return start(ScriptedEngine(*behaviour), Serving("x"), OFF, log=log, **options)


def failure(log: Path, *behaviour: str, **options: Any) -> str:
    with pytest.raises(BackendError) as failed:
        started(log, *behaviour, **options)
    assert "\n" not in str(failed.value)
    return str(failed.value)


def until(holds: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "engine.log"


def test_an_engine_is_started_watched_and_stopped(log: Path) -> None:
    waits: list[tuple[float, str]] = []
    engine = started(
        log, "say=loading layer 1", "wait=1", "workers", "serve",
        grace_s=0.5, on_wait=lambda seconds, line: waits.append((seconds, line)),
    )  # fmt: skip
    with engine:
        assert RemoteServer(engine.url).is_ready()
        assert "loading layer 1" in [line for _, line in waits]
        assert engine.died() is None
        assert until(lambda: len(engine.processes()) == NUM_PROCESSES)
        running = engine.processes()
    assert [pid for pid in running if is_alive(pid)] == []
    assert not RemoteServer(engine.url).is_ready()
    assert "listening" in log.read_text()
    engine.stop()  # twice is once


def test_nothing_is_left_when_we_are_killed(log: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(log), str(NUM_PROCESSES), str(SHORT_S)],
        stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        running = json.loads(parent.stdout.readline())
        assert all(is_alive(pid) for pid in running)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        saved_s = GRACE_S - SHORT_S
        gone = until(lambda: not any(is_alive(pid) for pid in running), GONE_S - saved_s)
        assert gone, [pid for pid in running if is_alive(pid)]


def test_children_of_an_engine_that_ends_go_with_it(log: Path) -> None:
    engine = EngineProcess(
        "scripted",
        ScriptedEngine("workers", "wait=1", "exit=3").launch(Serving("x"), OFF, 1),
        1,
        log,
        grace_s=0.2,
    )
    with engine:
        assert until(lambda: len(engine.processes()) == NUM_PROCESSES)
        running = engine.processes()
        assert until(engine.died)
        assert "code 3" in str(engine.died())
        assert until(lambda: not any(is_alive(pid) for pid in running))


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        (["say=ValueError: no such layer", "exit=1"], ["code 1", '"ValueError: no such layer"']),
        (
            ["say=torch.OutOfMemoryError: CUDA out of memory. Tried", "exit=1"],
            ["ran out of memory"],
        ),
        (["say=loading", "kill"], ["signal 9", "out of memory", '"loading"']),
        (["exit=4"], ["code 4", "log is empty"]),
    ],
)
def test_an_engine_that_does_not_start_says_why(
    log: Path, behaviour: list[str], words: list[str]
) -> None:
    said = failure(log, *behaviour)
    assert [each for each in [*words, str(log)] if each not in said] == []


def test_an_engine_that_is_never_healthy(log: Path) -> None:
    said = failure(log, "say=still loading", "wait=300", limit_s=1.0)
    assert "within 1 s" in said
    assert "still loading" in said


def test_an_engine_whose_log_goes_on_has_longer(log: Path) -> None:
    still = [word for n in range(6) for word in (f"say=downloading {n}", "wait=0.4")]
    with started(log, *still, "serve", limit_s=1.0) as engine:
        assert RemoteServer(engine.url).is_ready()


def test_an_engine_that_only_talks_has_four_times_as_long(log: Path) -> None:
    began = time.monotonic()
    talk = [word for n in range(100) for word in (f"say=waiting {n}", "wait=0.2")]
    said = failure(log, *talk, limit_s=1.0)
    assert "within 4 s" in said
    assert said.endswith("--start-limit gives it longer")
    assert time.monotonic() - began < 12


def test_a_gpu_that_others_fill_is_told_apart(log: Path) -> None:
    words = "ValueError: Free memory on device cuda:0 (70.1/79.1 GiB) on startup is less than desired GPU memory utilization (0.9, 71.2 GiB)."  # noqa: E501
    with pytest.raises(CrowdedGpuError, match="ran out of memory"):
        started(log, f"say={words}", "exit=1")
    with pytest.raises(BackendError) as failed:
        started(log, "say=CUDA out of memory", "exit=1")
    assert not isinstance(failed.value, CrowdedGpuError)


def test_a_program_that_is_not_there(log: Path) -> None:
    with EngineProcess("ghost", Launch(("/no/such/program",)), free_port(), log) as engine:
        assert until(engine.died)
        assert "No such file" in str(engine.died())
        assert "/no/such/program" in str(engine.died())


def test_a_port_that_was_taken_is_another_one_the_next_time(log: Path, tmp_path: Path) -> None:
    with started(log, f"taken={tmp_path / 'tried'}", "serve") as engine:
        assert RemoteServer(engine.url).is_ready()


def test_a_death_is_noticed_with_its_signal(log: Path) -> None:
    with started(log, "serve") as engine:
        os.kill(engine.processes()[0], signal.SIGSEGV)
        assert "SIGSEGV" in wait_for_death(engine)


def test_a_launch_adds_to_the_environment(log: Path) -> None:
    program = "import os; print(os.environ['OUTDRAFT_TEST'], os.environ['PATH'] != '')"
    launch = Launch((sys.executable, "-c", program), env={"OUTDRAFT_TEST": "so"})
    with EngineProcess("printing", launch, 1, log) as engine:
        assert until(engine.died)
    assert log.read_text() == "so True\n"


def test_an_engine_sees_the_gpus_that_it_is_given(log: Path) -> None:
    for gpus, expected in (((), None), (("2", "0"), "2,0")):
        with start(ScriptedEngine("serve"), Serving("x", gpus=gpus), OFF, log=log) as engine:
            assert engine.launch.env.get("CUDA_VISIBLE_DEVICES") == expected


def test_a_launchs_files_are_there_before_the_start(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "schedule.json"
    launch = Launch(("cat", str(file)), files={str(file): "{}"})
    with EngineProcess("reading", launch, 1, log) as engine:
        assert until(engine.died)
    assert log.read_text() == "{}"
